// Sends one webhook: go run send.go
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

type message struct {
	ID          string `json:"id"`
	Endpoint    string `json:"endpoint"`
	ContentType string `json:"content_type"`
	// Exactly one of the two; encoding/json writes a []byte as standard base64.
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

func send(ctx context.Context, client *sqs.Client, eventID, endpoint, contentType string, body []byte) error {
	m := message{ID: eventID, Endpoint: endpoint, ContentType: contentType}
	// SQS refuses U+FFFE and U+FFFF, which encoding/json leaves as they are.
	if text := string(body); utf8.ValidString(text) && !strings.ContainsAny(text, "\uFFFE\uFFFF") {
		m.Body = &text
	} else {
		m.BodyBase64 = body
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl:       aws.String(os.Getenv("INTAKE_QUEUE_URL")),
		MessageBody:    aws.String(string(raw)),
		MessageGroupId: aws.String(endpoint),
	})
	return err
}

func main() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	order := struct {
		Order  int    `json:"order"`
		Status string `json:"status"`
	}{4711, "paid"}
	body, err := json.Marshal(order)
	if err != nil {
		log.Fatal(err)
	}
	// From the event itself: sent twice, it is still one event.
	eventID := fmt.Sprintf("order_%d_%s", order.Order, order.Status)
	if err := send(ctx, sqs.NewFromConfig(cfg), eventID, os.Getenv("WEBHOOK_ENDPOINT"), "application/json", body); err != nil {
		log.Fatal(err)
	}
}
