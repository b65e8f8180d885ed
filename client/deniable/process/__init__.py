"""What a guest in a process of somebody else's has to mind: forks, exits, imports, the log."""
