import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;

/** Keeps the last records, each a list of texts. */
final class Records {
    static List<String> read(long number) {
        var fields = new ArrayList<String>();
        for (int i = 0; i < 10; i++) {
            fields.add("field " + number + " of " + i);
        }
        return fields;
    }

    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var last = new HashMap<Long, List<String>>();
        for (long number = 0; ; number++) {
            last.put(number * 7919 % 55000, read(number));
            if (number % 100 == 0) {
                operations.count();
            }
        }
    }
}
