"""Planning: what so many users would tell, before anything is collected, and what a wanted error needs."""
