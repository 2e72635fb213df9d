// Sends one webhook: java -cp "libs/*" Send.java

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.SqsClientBuilder;

public class Send {
    // Base64 carries any bytes, and with it no part of the message holds a character that JSON escapes.
    static void send(SqsClient sqs, String eventId, String endpoint, String contentType, byte[] body) {
        String message = String.format(
                "{\"id\":\"%s\",\"endpoint\":\"%s\",\"content_type\":\"%s\",\"body_base64\":\"%s\"}",
                eventId, endpoint, contentType, Base64.getEncoder().encodeToString(body));
        sqs.sendMessage(request -> request
                .queueUrl(System.getenv("INTAKE_QUEUE_URL"))
                .messageBody(message)
                .messageGroupId(endpoint));
    }

    public static void main(String[] arguments) {
        SqsClientBuilder builder = SqsClient.builder();
        String local = System.getenv("AWS_ENDPOINT_URL");
        if (local != null) {
            builder.endpointOverride(URI.create(local));
        }
        int order = 4711;
        String status = "paid";
        String json = String.format("{\"order\":%d,\"status\":\"%s\"}", order, status);
        try (SqsClient sqs = builder.build()) {
            // From the event itself: sent twice, it is still one event.
            send(sqs, "order_" + order + "_" + status, System.getenv("WEBHOOK_ENDPOINT"), "application/json",
                    json.getBytes(StandardCharsets.UTF_8));
        }
    }
}
