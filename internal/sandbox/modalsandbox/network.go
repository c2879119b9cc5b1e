package modalsandbox

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

const (
	// networkHeader is a response header of a local server whose sandboxes have a separate network;
	// see package localmodal.
	networkHeader = "x-overwinter-host-ports"
	// refusalsMethod lists the connections that such a network has refused.
	refusalsMethod = "/overwinter.localmodal.Network/NetworkRefusals"
)

var _ driver.Networked = (*Driver)(nil)

// readNetwork reads which host ports the server's sandboxes can reach.
func readNetwork(note func(*hostports.Set)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		var header metadata.MD
		err := invoke(ctx, method, request, reply, conn, append(o, grpc.Header(&header))...)
		if len(header.Get(isolationHeader)) == 0 {
			return err // Modal, or no response
		}
		if words := header.Get(networkHeader); len(words) == 0 {
			note(nil)
		} else if ports, parseErr := hostports.Parse(words[0]); parseErr == nil {
			note(&ports)
		}
		return err
	}
}

// Network implements driver.Networked.
func (d *Driver) Network(ctx context.Context) (driver.Network, error) {
	const op = "describe network"
	if !d.cfg.local {
		return driver.Network{}, driver.Errorf(driver.Unsupported, op, "", "Modal does not report on the network of sandboxes")
	}
	if d.isolation.Load() == nil { // no response yet
		if _, err := d.application(ctx); err != nil {
			return driver.Network{}, fault(op, "", err)
		}
	}
	ports := d.hostPorts.Load()
	if ports == nil {
		return driver.Network{}, driver.Errorf(driver.Unsupported, op, "", "sandboxes share the network of the local Modal's machine")
	}
	return driver.Network{HostName: hostports.Name, HostPorts: *ports}, nil
}

// Refusals implements driver.Networked.
func (d *Driver) Refusals(ctx context.Context, id string, after int64) ([]driver.Refusal, int64, error) {
	const op = "list refusals"
	if _, err := d.Network(ctx); err != nil {
		return nil, 0, err
	}
	conn := d.conn.Load()
	if conn == nil {
		return nil, 0, driver.Errorf(driver.Unavailable, op, id, "there is no connection yet")
	}
	request, err := json.Marshal(map[string]any{"sandboxId": id, "after": after})
	if err != nil {
		return nil, 0, fault(op, id, err)
	}
	var reply wrapperspb.BytesValue
	if err := conn.Invoke(ctx, refusalsMethod, wrapperspb.Bytes(request), &reply); err != nil {
		return nil, 0, fault(op, id, err)
	}
	var answer struct {
		Refusals []struct {
			Time     time.Time
			Host, IP string
			Port     uint16
			Protocol string
			Verdict  string
			Count    int
		}
		Last int64
	}
	if err := json.Unmarshal(reply.GetValue(), &answer); err != nil {
		return nil, 0, fault(op, id, err)
	}
	refusals := make([]driver.Refusal, 0, len(answer.Refusals))
	for _, r := range answer.Refusals {
		refusals = append(refusals, driver.Refusal(r))
	}
	return refusals, answer.Last, nil
}
