package turn

import (
	"context"
	"reflect"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Greeting opens the link of a run while its claim, or its first attempt, is being committed, so that
// the prompt does not wait for one after the other. Nothing is delivered: if the run does not begin after all, its
// runner has only been asked for the state of a run that it does not know.
//
// The runner drops its link to an earlier run when it is greeted. While the claim is not committed, no
// other run has one, since the claim holds the lock of the session. A worker that freezes at this point
// may break the link of a later run when it continues; the next attempt at that run then attaches again.
type Greeting struct {
	cancel   context.CancelFunc
	answered chan struct{} // closed once the fields below are set
	hello    runner.Hello
	kept     *keptLink // with the runner's welcome; nil if no link was kept, or after an error
	err      error
}

// Greet sends the hello of a fresh run over the link that is kept for its sandbox. It does not wait, and
// starts no exec if no link is kept. The caller passes the greeting to Run, or abandons it.
func (x *Executor) Greet(ctx context.Context, in Request) *Greeting {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoAnswer)
	g := &Greeting{cancel: cancel, answered: make(chan struct{})}
	go func() {
		defer close(g.answered)
		var err error
		if g.hello, err = x.hello(ctx, in, in.Start.Run.LastFrame); err != nil {
			return // the attempt tries it again
		}
		if kept := x.Links.take(ctx, in.SandboxID); kept != nil {
			if g.err = x.reattach(ctx, kept, g.hello); g.err == nil {
				g.kept = kept
			}
		}
	}()
	return g
}

// Answered reports whether no hello is on its way: the runner has answered it, or none was sent. It returns
// true for nil.
func (g *Greeting) Answered() bool {
	if g == nil {
		return true
	}
	select {
	case <-g.answered:
		return g.err == nil
	default:
		return false
	}
}

// Abandon closes the link unless an attempt has taken it. It may be called more than once, and for nil.
func (g *Greeting) Abandon() {
	if g == nil {
		return
	}
	g.cancel()
	<-g.answered
	if g.kept != nil {
		g.kept.close()
		g.kept = nil
	}
}

// take returns the link if the runner has answered the same hello; nil if there is none. An error is
// final for the attempt, as described at dial.
func (g *Greeting) take(ctx context.Context, hello runner.Hello) (*keptLink, error) {
	if g == nil {
		return nil, nil
	}
	select {
	case <-g.answered:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if g.err != nil || g.kept == nil {
		return nil, g.err
	}
	if !reflect.DeepEqual(g.hello, hello) { // another run was claimed in the end
		g.Abandon()
		return nil, nil
	}
	kept := g.kept
	g.kept = nil
	return kept, nil
}

// reattach opens a run's link over a kept one, and closes it if that fails.
func (x *Executor) reattach(ctx context.Context, kept *keptLink, hello runner.Hello) error {
	kept.link.Reserve(x.readAhead)
	err := kept.link.Reattach(ctx, hello)
	if err != nil {
		kept.close()
	}
	return err
}
