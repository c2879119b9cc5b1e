package localmodal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// remember is how long the record of an ended sandbox is kept.
const remember = 7 * 24 * time.Hour

// recover restores the state of an earlier server, whose sandboxes ended with it at the latest.
// Sandboxes without a recorded end are ended now, with the files that they left.
func (s *Server) recover(ctx context.Context) error {
	left, err := s.runtime.LeftOver()
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range s.records.sandboxes.All() {
		if r.ended() && time.Since(r.Ended) > remember {
			failures = append(failures, s.records.sandboxes.Delete(r.ID))
			continue
		}
		if err := s.describeExitImage(r); err != nil {
			failures = append(failures, err)
		}
		sb := endedSandbox(s, r)
		if r.ended() {
			close(sb.kept)
		} else {
			if _, claimed := s.exitImage(r.ID); !claimed && !slices.Contains(left, r.ID) {
				sb.rec.ExitSnapshot = false // it had not started, and has no files
			}
			s.logger.InfoContext(ctx, "sandbox ended with an earlier server", slog.String("sandbox_id", r.ID))
			pending, err := s.conclude(ctx, sb, pb.GenericResult_GENERIC_STATUS_TERMINATED, exitTerminated)
			if err != nil {
				failures = append(failures, fmt.Errorf("recover sandbox %s: %w", r.ID, err))
			}
			if pending {
				left = slices.DeleteFunc(left, func(id string) bool { return id == r.ID })
			}
		}
		s.adopt(sb)
	}
	for _, id := range left { // builds, and boxes that were not claimed above
		failures = append(failures, s.runtime.Discard(id))
	}
	return errors.Join(failures...)
}

// describeExitImage adds the description of an exit image to its record, so that it is listed. An
// older release did not store it.
func (s *Server) describeExitImage(r sandboxRecord) error {
	im, ok := s.records.images.Get(r.ExitImageID)
	if !ok || im.Tags != nil {
		return nil
	}
	im.Tags, im.Exit, im.Created = r.Tags, true, r.Ended
	return s.records.images.Put(im.ID, im)
}

func (s *Server) adopt(sb *sandbox) {
	r := sb.record()
	s.sandboxes[r.ID], s.tasks[r.TaskID] = sb, sb
	if r.IdempotencyKey != "" {
		s.byKey[r.IdempotencyKey] = sb
	}
	if r.Created.After(s.lastCreated) {
		s.lastCreated = r.Created
	}
}
