"""Planning: how exact the estimates from so many users would be, before anything is collected, and what a wanted error needs."""
