/** A reader shows each price as soon as the market thread has it. */
final class Ticker {
    private static volatile long price;

    static long next(long seen) {
        while (price == seen) {
            Thread.onSpinWait();
        }
        return price;
    }

    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var reader = new Thread(() -> {
            for (long seen = 0; ; ) {
                seen = next(seen);
                operations.count();
            }
        }, "reader");
        reader.start();
        while (true) {
            Thread.sleep(3);
            price++;
        }
    }
}
