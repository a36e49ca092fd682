"""What a live process is made of: its modules, functions, system calls, and names for them."""
