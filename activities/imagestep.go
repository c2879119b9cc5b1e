package activities

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// prepareImage prepares the image of a session's agent. One that must be built first takes a while, which is reported as a
// stage of the session's start.
func (g *sandboxes) prepareImage(ctx context.Context, s session.Session) (string, error) {
	type prepared struct {
		image string
		err   error
	}
	done := make(chan prepared, 1) // buffered, so that the goroutine ends even if nothing receives
	go func() {
		image, err := g.Image.Prepare(ctx, s.Agent)
		done <- prepared{image, err}
	}()
	timer := time.NewTimer(g.ImageSoon)
	defer timer.Stop()
	select {
	case p := <-done:
		return p.image, p.err
	case <-timer.C:
	}
	var p prepared
	reported := g.reportStage(ctx, s.ID, session.StepImage, func() error {
		p = <-done
		return refusedOr(p.err)
	})
	if p.err == nil && p.image == "" { // the report failed before prepareImage waited
		p = <-done
	}
	if p.err != nil {
		return "", p.err
	}
	return p.image, reported
}
