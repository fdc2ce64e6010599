import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** What the cases of the JDBC driver share: tickets in ascending order, connections, and how a case is told. */
class Cases {
    interface Body { void run() throws Exception; }

    static final String resource = System.getenv("RESOURCE");
    static final String[] tickets = System.getenv("TICKETS").split(" ");
    static final String where = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
    static final String large = "0123456789abcdef".repeat((256 << 10) / 16);
    private static int at;
    private static final Map<String, Body> all = new LinkedHashMap<>();
    private static final List<Connection> opened = new ArrayList<>();

    /** The holder's ticket. */
    static String holder() { return tickets[at]; }

    /** The ticket of a successor, who is the holder from now on. */
    static String next() { return tickets[++at]; }

    static void test(String name, Body body) {
        if (all.put(name, body) != null) throw new IllegalStateException(name);
    }

    static void equal(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("got " + brief(got) + ", want " + brief(want));
    }

    private static String brief(Object v) {
        var s = String.valueOf(v);
        return s.length() > 300 ? s.substring(0, 300) : s;
    }

    /** Expects an error with one of the codes. */
    static SQLException code(Body body, String... want) {
        try {
            body.run();
        } catch (SQLException e) {
            return state(e, want);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
        throw new AssertionError("no error, want " + String.join(", ", want));
    }

    static SQLException state(SQLException e, String... want) {
        for (var w : want) if (w.equals(e.getSQLState())) return e;
        throw new AssertionError("got " + e.getSQLState() + " " + e.getMessage() + ", want " + String.join(", ", want), e);
    }

    /**
     * Wants a fence where the driver reads on behind an error, for a ReadyForQuery that never comes, and then tells only that
     * the connection is lost, as it does when an administrator ends the backend. The next connect tells why.
     */
    static void lost(Body body) {
        code(body, "08006");
        code(() -> open(tickets[at - 1]), "LG001");
    }

    /** A connection; "properties" are names and values in turn. */
    static Connection open(String ticket, String... properties) throws SQLException { return openAt(where, ticket, properties); }

    static Connection openAt(String hosts, String ticket, String... properties) throws SQLException {
        var p = new Properties();
        p.setProperty("user", System.getenv("PGUSER"));
        p.setProperty("sslmode", "disable");
        p.setProperty("loginTimeout", "30");
        if (!ticket.isEmpty()) p.setProperty("options", "-c fence.ticket=" + ticket);
        for (int i = 0; i < properties.length; i += 2) p.setProperty(properties[i], properties[i + 1]);
        var c = DriverManager.getConnection("jdbc:postgresql://" + hosts + "/" + System.getenv("PGDATABASE"), p);
        synchronized (opened) {
            opened.add(c);
        }
        return c;
    }

    static Connection open() throws SQLException { return open(holder()); }

    static Connection transaction(String... properties) throws SQLException {
        var c = open(holder(), properties);
        c.setAutoCommit(false);
        return c;
    }

    static void fence() throws SQLException { open(next()).close(); }

    static void exec(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute(sql);
        }
    }

    /** The first column of the first row, as text. */
    static String one(Connection c, String sql, Object... args) throws SQLException {
        try (var s = c.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) s.setObject(i + 1, args[i]);
            try (var rows = s.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    static int write(Connection c, int n) throws SQLException {
        try (var s = c.prepareStatement("insert into guarded values (?, ?)")) {
            s.setString(1, resource);
            s.setInt(2, n);
            return s.executeUpdate();
        }
    }

    static String ticketBySet(String ticket) { return "set fence.ticket = '" + ticket + "'"; }

    static String ticketBySetLocal(String ticket) { return "set local fence.ticket = '" + ticket + "'"; }

    static int pid(Connection c) throws SQLException { return c.unwrap(org.postgresql.PGConnection.class).getBackendPID(); }

    /** Waits until the connection's statement sleeps. */
    static void sleeps(Connection watch, Connection c) throws SQLException {
        while (!"t".equals(one(watch, "select exists (select from pg_stat_activity where pid = ? and wait_event = 'PgSleep')", pid(c)))) {
            // not yet
        }
    }

    /** Something that runs meanwhile; its join throws what it threw. */
    record Running(CompletableFuture<Void> done) {
        void join() throws Exception {
            try {
                done.get(60, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                throw (Exception) e.getCause();
            }
        }
    }

    static Running meanwhile(Body body) {
        var done = new CompletableFuture<Void>();
        var t = new Thread(() -> {
            try {
                body.run();
                done.complete(null);
            } catch (Exception e) {
                done.completeExceptionally(e);
            } catch (Error e) {
                done.completeExceptionally(new RuntimeException(e));
            }
        });
        t.setDaemon(true);
        t.start();
        return new Running(done);
    }

    static void runAll() {
        boolean failed = false;
        for (var c : all.entrySet()) {
            try {
                meanwhile(c.getValue()).join();
                System.out.println("ok " + c.getKey());
            } catch (Exception e) {
                failed = true;
                e.printStackTrace();
                System.out.println("not ok " + c.getKey() + ": " + e.toString().replaceAll("\\s+", " "));
            }
            closeAll();
        }
        System.exit(failed ? 1 : 0);
    }

    private static void closeAll() {
        synchronized (opened) {
            for (var c : opened) {
                try {
                    c.close();
                } catch (SQLException e) {
                    // it was fenced
                }
            }
            opened.clear();
        }
    }
}
