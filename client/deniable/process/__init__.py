"""What a library must handle in an app's process: forks, exits, imports, the log."""
