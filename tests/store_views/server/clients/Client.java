import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/** A program with the JDBC driver of Arrow Flight SQL: HOST PORT TOKEN ROWS PARAMETERS ERROR SLOW, the last four SQL. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("token", arguments[2]);
        properties.put("useEncryption", "false");
        String url = "jdbc:arrow-flight-sql://" + arguments[0] + ":" + arguments[1];
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            print(connection.createStatement().executeQuery(arguments[3]), "row");
            try (PreparedStatement prepared = connection.prepareStatement(arguments[4])) {
                prepared.setString(1, "it's");
                prepared.setLong(2, 1_700_000_000_000_000_001L);
                print(prepared.executeQuery(), "parameters");
            }
            try {
                print(connection.createStatement().executeQuery(arguments[5]), "no error");
            } catch (SQLException error) {
                System.out.println("error\t" + error.getMessage().replace('\n', ' '));
            }
            cancelled(connection, arguments[6]);
        }
    }

    private static void print(ResultSet rows, String what) throws SQLException {
        try (rows) {
            while (rows.next()) {
                System.out.println(what + "\t" + rows.getString(1) + "\t" + rows.getLong(2));
            }
        }
    }

    /** Runs the statement until a line comes on standard input. */
    private static void cancelled(Connection connection, String sql) throws Exception {
        Statement statement = connection.createStatement();
        Thread cancelling = new Thread(() -> {
            try {
                System.in.read();
                statement.cancel();
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        cancelling.start();
        try {
            print(statement.executeQuery(sql), "not cancelled");
        } catch (SQLException error) {
            System.out.println("cancelled\t" + error.getMessage().replace('\n', ' '));
        }
        cancelling.join();
    }
}
