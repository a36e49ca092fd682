"""Who waits for whom, and when: as text, JSON, and a page with a timeline."""
