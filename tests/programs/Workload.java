import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** Allocation, hand-over between threads, exceptions and compiled loops. Works until its input ends. */
public class Workload {
    static volatile boolean finished;
    static final AtomicInteger broken = new AtomicInteger();

    interface Step {
        void run(int round) throws Exception;
    }

    static Thread repeat(Step step) {
        Thread thread = new Thread(() -> {
            try {
                for (int round = 0; round == 0 || !finished; round++) step.run(round);
            } catch (Exception e) {
                broken.incrementAndGet();
            }
        });
        thread.start();
        return thread;
    }

    static void check(boolean holds) {
        if (!holds) broken.incrementAndGet();
    }

    static int fall(int depth) {
        if (depth == 0) throw new IllegalStateException("bottom");
        return fall(depth - 1) + 1;
    }

    public static void main(String[] arguments) throws Exception {
        SynchronousQueue<Integer> queue = new SynchronousQueue<>();
        List<Thread> threads = new ArrayList<>();
        threads.add(repeat(round -> {
            Map<Integer, byte[]> map = new HashMap<>();
            for (int i = 0; i < 500; i++) map.put(i, new byte[i]);
            for (int i = 0; i < 500; i++) check(map.get(i).length == i);
        }));
        threads.add(repeat(round -> {
            long sum = 0;
            for (int i = 0; i < 100000; i++) sum += (long) i * i % 7;
            check(sum == 199999);
        }));
        threads.add(repeat(round -> {
            try {
                check(fall(40) < 0);
            } catch (IllegalStateException e) {
                check(e.getMessage().equals("bottom"));
            }
        }));
        threads.add(repeat(round -> {
            Thread child = new Thread(() -> {
                try {
                    queue.put(round);
                } catch (InterruptedException e) {
                    broken.incrementAndGet();
                }
            });
            child.start();
            check(queue.take() == round);
            child.join();
        }));
        System.out.println("ready");
        check(System.in.read() == -1);
        finished = true;
        for (Thread thread : threads) thread.join();
        System.out.println("broken " + broken.get());
        System.exit(7);
    }
}
