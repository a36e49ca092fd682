/* A library that says which it is; two are made of it, of the same size. */
long value(void) { return VALUE; }
