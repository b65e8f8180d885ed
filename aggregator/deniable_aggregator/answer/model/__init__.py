"""What is asked and answered over HTTP, member by member. The API's JSON, its schema and the pages use these classes."""
