/* Stores where nothing is. */
static int *volatile nowhere = (int *)0x10;

int main(void) {
    *nowhere = 7;
    return 0;
}
