import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** Clerks book on one account; each booking is confirmed, or written down where there is a file. */
final class Accounts {
    private final FileChannel book;
    private final ByteBuffer page = ByteBuffer.allocateDirect(4 << 20);
    private long balance;

    Accounts(FileChannel book) {
        this.book = book;
    }

    void confirm() throws Exception {
        if (book == null) {
            Thread.sleep(2);
            return;
        }
        page.clear();
        page.putLong(0, balance);
        book.write(page, 0);
        book.force(true);
    }

    synchronized void book(long amount) throws Exception {
        balance += amount;
        confirm();
    }

    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var file = arguments.length > 2 ? new RandomAccessFile(arguments[2], "rw").getChannel() : null;
        var accounts = new Accounts(file);
        for (int clerk = 0; clerk < Integer.parseInt(arguments[1]); clerk++) {
            long amount = clerk;
            new Thread(() -> {
                try {
                    while (true) {
                        accounts.book(amount);
                        operations.count();
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            }, "clerk-" + clerk).start();
        }
    }
}
