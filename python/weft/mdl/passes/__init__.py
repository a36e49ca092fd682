"""What is checked of a document once it is parsed: one file for each kind of mistake."""
