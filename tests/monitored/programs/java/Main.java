import java.io.*;
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.*;

public class Main {
    static void threads() throws Exception {
        AtomicLong sum = new AtomicLong();
        Thread[] threads = new Thread[32];
        for (int i = 0; i < threads.length; i++) {
            final int number = i;
            threads[i] = new Thread(() -> {
                List<byte[]> blocks = new ArrayList<>();
                for (int j = 0; j < 200; j++) {
                    byte[] block = new byte[1000 + j];
                    block[7] = (byte) number;
                    blocks.add(block);
                    if (blocks.size() > 20) blocks.remove(0);
                    sum.addAndGet(block[7]);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println("threads " + sum);
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Integer>> results = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
            final int number = i;
            results.add(pool.submit(() -> number * number % 97));
        }
        int total = 0;
        for (Future<Integer> result : results) total += result.get();
        pool.shutdown();
        System.out.println("pool " + total + " " + pool.awaitTermination(60, TimeUnit.SECONDS));
    }

    static void memory() throws Exception {
        long sum = 0;
        for (int i = 0; i < 200; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20);
            buffer.putInt(i * 4, i);
            sum += buffer.getInt(i * 4);
        }
        System.out.println("direct " + sum);
        try (FileChannel file = FileChannel.open(Path.of("mapped"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            for (int i = 0; i < 1 << 20; i += 4) mapped.putInt(i, i);
            mapped.force();
        }
        CRC32 crc = new CRC32();
        crc.update(Files.readAllBytes(Path.of("mapped")));
        System.out.println("mapped " + crc.getValue());
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream out = new GZIPOutputStream(packed)) { out.write(new byte[5_000_000]); }
        System.out.println("zip " + new GZIPInputStream(new ByteArrayInputStream(packed.toByteArray())).readAllBytes().length);
    }

    static void programs() throws Exception {
        for (int i = 0; i < 10; i++) {
            Process process = new ProcessBuilder("sh", "-c", "cat; echo problem >&2; exit " + i).redirectErrorStream(true).start();
            process.getOutputStream().write("input\n".getBytes());
            process.getOutputStream().close();
            String output = new String(process.getInputStream().readAllBytes()).replace("\n", " ");
            System.out.println("program " + output + process.waitFor());
        }
        Process asleep = new ProcessBuilder("sleep", "1000").start();
        asleep.destroyForcibly();
        System.out.println("killed " + asleep.waitFor());
        ProcessBuilder bare = new ProcessBuilder("env");
        bare.environment().clear();
        bare.environment().put("ONE", "1");
        System.out.print("environment " + new String(bare.start().getInputStream().readAllBytes()));
        try {
            new ProcessBuilder("/nonexistent/program").start();
        } catch (IOException e) {
            System.out.println(e.getMessage());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String what = arguments.length > 0 ? arguments[0] : "";
        if (what.equals("exhaust")) {
            List<long[]> blocks = new ArrayList<>();
            for (;;) blocks.add(new long[100_000]);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("the shutdown hook ran")));
        if (what.equals("wait")) {
            System.out.println("started");
            System.out.flush();
            Thread.sleep(1_000_000);
        }
        threads();
        memory();
        if (what.isEmpty()) programs();
        System.exit(what.isEmpty() ? 9 : 0);
    }
}
