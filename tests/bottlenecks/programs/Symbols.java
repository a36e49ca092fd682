import java.util.HashMap;

/** Resolves the names of a program by a table of symbols. */
final class Symbols {
    record Symbol(String name) {
        @Override
        public int hashCode() {
            return name.charAt(0);
        }
    }

    static int resolve(HashMap<Object, Integer> table, Symbol symbol) {
        return table.getOrDefault(symbol, 0);
    }

    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var table = new HashMap<Object, Integer>();
        var symbols = new Symbol[2000];
        for (int i = 0; i < symbols.length; i++) {
            symbols[i] = new Symbol("symbol" + i);
            table.put(symbols[i], i);
        }
        long sum = 0;
        while (sum >= 0) {
            for (int i = 0; i < 20; i++) {
                sum += resolve(table, symbols[(int) ((sum + i) % symbols.length)]) + 1;
            }
            operations.count();
        }
    }
}
