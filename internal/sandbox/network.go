package sandbox

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Network describes the network of sandboxes that have their own.
type Network = driver.Network

// Refusal counts the connections to one destination that a sandbox's network refused.
type Refusal = driver.Refusal

// Network describes the network of sandboxes. It fails with Unsupported if they share the network
// of this machine, or if the provider does not report it.
func (p *Provider) Network(ctx context.Context) (Network, error) {
	const op = "describe network"
	networked, ok := p.drv.(driver.Networked)
	if !ok {
		return Network{}, driver.Errorf(Unsupported, op, "", "the driver does not know the network of sandboxes")
	}
	n, err := networked.Network(ctx)
	return n, fault(ctx, op, "", err)
}

// Refusals returns the refused connections of the sandbox after the given number, and the number to
// continue from; the first call passes 0. It fails with Unsupported like Provider.Network.
func (s *Sandbox) Refusals(ctx context.Context, after int64) ([]Refusal, int64, error) {
	const op = "list refusals"
	networked, ok := s.p.drv.(driver.Networked)
	if !ok {
		return nil, 0, driver.Errorf(Unsupported, op, s.id, "the driver does not know the network of sandboxes")
	}
	refusals, last, err := networked.Refusals(ctx, s.id, after)
	return refusals, last, fault(ctx, op, s.id, err)
}
