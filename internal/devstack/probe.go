package devstack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// maxHealthAnswer bounds the bytes that are read of a health response.
const maxHealthAnswer = 64 << 10

// tcpReady returns a probe that connects.
func tcpReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}

// httpReady returns a probe that requires a 200.
func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := httpGet(ctx, url)
		return err
	}
}

// httpGet returns the body of a 200.
func httpGet(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	// A new connection: the next probe may meet another process on the same port.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // read only
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", url, response.Status, body)
	}
	return body, nil
}

// temporalReady returns a probe that asks the frontend for its health.
func temporalReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }() // no call is in progress
		answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx,
			&grpc_health_v1.HealthCheckRequest{Service: "temporal.api.workflowservice.v1.WorkflowService"})
		if err != nil {
			return err
		}
		if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			return fmt.Errorf("%s is %s", address, answer.GetStatus())
		}
		return nil
	}
}

// sandboxInfo is the API's description of the sandboxes.
type sandboxInfo struct {
	Driver    string `json:"driver"`
	Isolation string `json:"isolation"`
}

// sandboxInfoTimeout is how long a worker that has started may take to describe its sandboxes.
const sandboxInfoTimeout = 5 * time.Second

// readSandboxInfo queries the API until a worker has described its sandboxes, which it does after
// its start; unknown fields stay empty.
func readSandboxInfo(ctx context.Context, readyURL string) sandboxInfo {
	ctx, cancel := context.WithTimeout(ctx, sandboxInfoTimeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var answer struct {
			Checks struct {
				Sandbox sandboxInfo `json:"sandbox"`
			} `json:"checks"`
		}
		body, err := httpGet(ctx, readyURL)
		if err == nil && json.Unmarshal(body, &answer) == nil && answer.Checks.Sandbox.known() {
			return answer.Checks.Sandbox
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return sandboxInfo{}
		}
	}
}

// known reports whether a worker has described its sandboxes.
func (i sandboxInfo) known() bool { return i.Driver != "" && i.Driver != "unknown" }
