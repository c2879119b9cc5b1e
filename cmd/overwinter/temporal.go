package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

// temporalFlags configure the connection to Temporal. The variables have the names that Temporal's
// own tools use.
type temporalFlags struct {
	TemporalAddress   string `env:"TEMPORAL_ADDRESS" default:"127.0.0.1:7233" placeholder:"ADDR" help:"Address of Temporal's frontend. Default ${default}."`
	TemporalNamespace string `env:"TEMPORAL_NAMESPACE" default:"default" placeholder:"NAME" help:"Namespace of the sessions' workflows; it must exist. Default ${default}."`

	TemporalAPIKey     secret.Value `name:"temporal-api-key" env:"TEMPORAL_API_KEY" placeholder:"KEY" help:"Temporal API key; implies TLS. Prefer TEMPORAL_API_KEY: other users can read arguments."`
	TemporalTLS        bool         `name:"temporal-tls" env:"TEMPORAL_TLS" help:"Use TLS. Implied by --temporal-api-key and the --temporal-tls-* flags."`
	TemporalServerCA   string       `name:"temporal-tls-server-ca" env:"TEMPORAL_TLS_SERVER_CA_CERT_PATH" placeholder:"FILE" help:"CA certificates for Temporal's server, PEM. Default: the system's."`
	TemporalServerName string       `name:"temporal-tls-server-name" env:"TEMPORAL_TLS_SERVER_NAME" placeholder:"NAME" help:"Server name to verify in Temporal's certificate. Default: the host of the address."`
	TemporalClientCert string       `name:"temporal-tls-client-cert" env:"TEMPORAL_TLS_CLIENT_CERT_PATH" placeholder:"FILE" help:"Client certificate, PEM; requires --temporal-tls-client-key."`
	TemporalClientKey  string       `name:"temporal-tls-client-key" env:"TEMPORAL_TLS_CLIENT_KEY_PATH" placeholder:"FILE" help:"Key of the client certificate, PEM."`
}

// temporalWindow bounds the data that Temporal may send before it is acknowledged, on the connection
// and in each of its calls: 40 MiB/s with a round trip of 100 ms.
const temporalWindow = 4 << 20

// dial returns a client that connects when it is first used, so that a process starts and reports
// its state while Temporal is unavailable.
func (f temporalFlags) dial(logger *slog.Logger, registry prometheus.Registerer) (client.Client, error) {
	measures, err := temporalMetrics(registry)
	if err != nil {
		return nil, err
	}
	options := client.Options{
		HostPort: f.TemporalAddress, Namespace: f.TemporalNamespace, Logger: log.NewStructuredLogger(logger), MetricsHandler: measures,
	}
	if tracingWanted() {
		tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{})
		if err != nil {
			return nil, fmt.Errorf("trace Temporal's SDK: %w", err)
		}
		options.Interceptors = append(options.Interceptors, tracing)
	}
	// Messages have a few hundred bytes, so compression costs both sides more than it saves.
	options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	// Without a fixed window, gRPC measures the connection with a ping for each response.
	options.ConnectionOptions.DialOptions = []grpc.DialOption{
		grpc.WithStaticConnWindowSize(temporalWindow), grpc.WithStaticStreamWindowSize(temporalWindow),
	}
	if options.ConnectionOptions.TLS, err = f.tls(); err != nil {
		return nil, err
	}
	if !f.TemporalAPIKey.Empty() {
		options.Credentials = client.NewAPIKeyStaticCredentials(f.TemporalAPIKey.Reveal())
	}
	return client.NewLazyClient(options)
}

// tls returns nil if no flag enables TLS.
func (f temporalFlags) tls() (*tls.Config, error) {
	if !f.TemporalTLS && f == (temporalFlags{TemporalAddress: f.TemporalAddress, TemporalNamespace: f.TemporalNamespace}) {
		return nil, nil // no TLS
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.TemporalServerName}
	if f.TemporalServerCA != "" {
		pem, err := os.ReadFile(f.TemporalServerCA)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates for Temporal: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageError{fmt.Sprintf("--temporal-tls-server-ca: %s holds no certificate in PEM", f.TemporalServerCA)}
		}
	}
	if f.TemporalClientCert != "" || f.TemporalClientKey != "" {
		pair, err := tls.LoadX509KeyPair(f.TemporalClientCert, f.TemporalClientKey)
		if err != nil {
			return nil, usageError{fmt.Sprintf("--temporal-tls-client-cert and --temporal-tls-client-key: %s", err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
