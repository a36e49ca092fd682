import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;

/** Counts operations in a file, where others can read it. */
final class Operations {
    private static final VarHandle NUMBER =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private final ByteBuffer memory;

    Operations(String path) throws IOException {
        try (var file = new RandomAccessFile(path, "rw")) {
            memory = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8);
        }
    }

    void count() {
        NUMBER.getAndAdd(memory, 0, 1L);
    }
}
