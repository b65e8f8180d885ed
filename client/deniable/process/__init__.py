"""How the SDK behaves in an app's process: forks, exits, imports, threads, the log."""
