// Sends COUNT spans by a stock exporter: java Send.java (http/protobuf | grpc) ENDPOINT COUNT
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

public class Send {
    static void check(CompletableResultCode done) {
        if (!done.join(120, TimeUnit.SECONDS).isSuccess()) {
            throw new IllegalStateException("the exporter did not deliver");
        }
    }

    static SpanExporter exporter(String protocol, String endpoint) {
        if (protocol.equals("grpc")) {
            return OtlpGrpcSpanExporter.builder().setEndpoint(endpoint).setCompression("gzip").build();
        }
        return OtlpHttpSpanExporter.builder().setEndpoint(endpoint + "/v1/traces").setCompression("gzip").build();
    }

    public static void main(String[] arguments) {
        SpanExporter exporter = exporter(arguments[0], arguments[1]);
        BatchSpanProcessor processor =
                BatchSpanProcessor.builder(exporter).setMaxQueueSize(100_000).setMaxExportBatchSize(512).build();
        SdkTracerProvider provider = SdkTracerProvider.builder().addSpanProcessor(processor).build();
        Tracer tracer = provider.get("java");
        List<Long> ids = LongStream.range(0, 64).mapToObj(i -> i * 1000).collect(Collectors.toList());
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            tracer.spanBuilder("java-" + number).setAttribute(AttributeKey.longArrayKey("ids"), ids).startSpan().end();
        }
        check(provider.forceFlush());
        check(provider.shutdown());
    }
}
