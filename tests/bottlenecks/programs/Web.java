import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** An HTTP server that has little to do. */
final class Web {
    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[1]));
        var server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] answer = "hello\n".getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
            operations.count();
        });
        server.start();
    }
}
