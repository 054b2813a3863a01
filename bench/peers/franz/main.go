// franz copies one topic from a Kafka cluster to another as fast as franz-go consumes and produces: the mark that a
// general client sets. Partition, order, timestamps, keys, values and headers are kept; positions are not stored, and
// nothing is found, created or followed, as a mirror would.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxBuffered bounds the records between consumer and producer, as the sizes of the fetches bound those before it.
const maxBuffered = 200_000

func main() {
	source := flag.String("source", "", "host:port of the source cluster")
	target := flag.String("target", "", "host:port of the target cluster")
	topic := flag.String("topic", "", "topic to read from its start")
	remote := flag.String("remote", "", "topic to write; it exists, with as many partitions")
	codec := flag.String("codec", "none", "codec of the batches written: none, gzip, snappy, lz4, zstd")
	authority := flag.String("authority", "", "PEM file of the authority to trust; without it plain text is spoken")
	linger := flag.Duration("linger", 5*time.Millisecond, "how long a record may wait for others")
	flag.Parse()

	compression, known := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}[*codec]
	if !known {
		log.Fatalf("unknown codec %q", *codec)
	}
	var security []kgo.Opt
	if *authority != "" {
		security = append(security, kgo.DialTLSConfig(trusting(*authority)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	consumer, err := kgo.NewClient(append(security,
		kgo.SeedBrokers(*source),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxPartitionBytes(4<<20),
	)...)
	if err != nil {
		log.Fatalf("source: %v", err)
	}
	defer consumer.Close()
	// The producer is idempotent with acks=all: kgo's defaults.
	producer, err := kgo.NewClient(append(security,
		kgo.SeedBrokers(*target),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(compression),
		kgo.ProducerLinger(*linger),
		kgo.MaxBufferedRecords(maxBuffered),
	)...)
	if err != nil {
		log.Fatalf("target: %v", err)
	}
	defer producer.Close()

	acknowledged := func(record *kgo.Record, err error) {
		if err != nil && ctx.Err() == nil {
			log.Fatalf("%s-%d: %v", record.Topic, record.Partition, err)
		}
	}
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				log.Fatalf("%s-%d: %v", topic, partition, err)
			}
		})
		fetches.EachPartition(func(part kgo.FetchTopicPartition) {
			copies := make([]kgo.Record, len(part.Records))
			for at, record := range part.Records {
				copies[at] = kgo.Record{
					Topic:     *remote,
					Partition: record.Partition,
					Timestamp: record.Timestamp,
					Key:       record.Key,
					Value:     record.Value,
					Headers:   record.Headers,
				}
				producer.Produce(ctx, &copies[at], acknowledged) // waits while maxBuffered records are under way
			}
		})
	}
}

// trusting returns what a client needs for brokers whose certificates this authority has signed.
func trusting(path string) *tls.Config {
	pem, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatalf("no certificate in %s", path)
	}
	return &tls.Config{RootCAs: pool}
}
