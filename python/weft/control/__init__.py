"""What is done to a process: probes, libraries that come and go, the session, the clone."""
