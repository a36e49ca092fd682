"""Where threads have spent their time, for people and for other tools."""
