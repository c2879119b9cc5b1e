package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// tracingWanted reports whether the standard variables enable traces: OTEL_TRACES_EXPORTER=otlp, or
// an endpoint.
func tracingWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch os.Getenv("OTEL_TRACES_EXPORTER") {
	case "otlp":
		return true
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	}
	return false
}

// tracesAtStop limits how long a stopping process tries to export its remaining traces.
const tracesAtStop = 2 * time.Second

// startTracing exports traces of this process until stop is called, if the standard variables
// enable it.
func startTracing(ctx context.Context, service string) (on bool, stop func(), err error) {
	if !tracingWanted() {
		return false, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return false, nil, fmt.Errorf("export traces: %w", err)
	}
	of, err := resource.Merge(resource.NewSchemaless(
		semconv.ServiceName("overwinter-"+service), semconv.ServiceVersion(buildVersion()),
	), resource.Environment())
	if err != nil {
		return false, nil, fmt.Errorf("describe this process in traces: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(of))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return true, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesAtStop)
		defer cancel()
		provider.Shutdown(last) //nolint:errcheck // the process ends now
	}, nil
}
