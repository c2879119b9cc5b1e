package postgres

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Prompts of the mode collect wait for further ones until collect_until. A later one is joined to
// the first if only joined prompts are between them: the joined prompts are the last of the queue,
// consecutive, with the same rank and the same collect_until. No run gets them until that time has
// passed, another prompt follows them, or they are promoted.
//
//	collect ──▶ waits ── another collect ──▶ joined, and both wait as long again
//	              └─ time over · another prompt · promote ──▶ queued ── claim ──▶ processing, all of them in one run
//
// The state is in the rows, so that nothing is lost with an api whose timer would have ended the
// collection: relays then signal the workflow.

// joinedSeparator separates the contents of joined prompts.
const joinedSeparator = "\n\n"

// place is the position of a new prompt in the queue.
type place struct {
	joined string // the prompt that it is joined to
	rank   int64
	until  *time.Time // end of its collection
}

// placeOf decides where in the queue, whose head is given, a new prompt goes. If prompts are being
// collected and the new one neither joins them nor precedes them, their collection ends.
func (s *sessionTx) placeOf(ctx context.Context, p session.Prompt, head []dbsqlc.PromptHeadRow) (at place, closed bool, err error) {
	if p.Mode == session.Steer {
		return place{rank: steerRank(head)}, false, nil
	}
	collecting, _ := collecting(head)
	if p.Mode == session.Collect {
		until := s.now.Add(p.CollectFor)
		at.until = &until
		if collecting {
			rows, err := s.q.PromptsGather(ctx, s, &dbsqlc.PromptsGatherParams{SessionID: s.row.ID, At: s.now})
			if err != nil {
				return at, false, err
			}
			if joins(rows, p) {
				if latest := rows[0].CreatedAt.Add(session.MaxCollectWindows * p.CollectFor); until.After(latest) {
					at.until = &latest
				}
				at.joined, at.rank = rows[0].ID, rows[0].Rank
				return at, false, s.q.PromptsGatherUntil(ctx, &s.later, &dbsqlc.PromptsGatherUntilParams{SessionID: s.row.ID, ID: at.joined, Until: *at.until})
			}
		}
	}
	if !collecting {
		return at, false, nil
	}
	return at, true, s.q.PromptsGatherClose(ctx, &s.later, s.row.ID)
}

// joins reports whether a prompt joins the collected ones: together they must fit the bounds of one
// prompt, and have the same policy for an unknown outcome.
func joins(rows []dbsqlc.PromptsGatherRow, p session.Prompt) bool {
	if len(rows) == 0 || rows[0].JoinedTo != "" || rows[0].OnUnknown != string(p.OnUnknown) || len(rows) >= session.MaxCollected {
		return false
	}
	bytes, files, fileBytes := int64(len(p.Content)), len(p.Attachments), int64(0)
	for _, a := range p.Attachments {
		fileBytes += int64(len(a.Data))
	}
	for _, row := range rows {
		bytes += row.Bytes + int64(len(joinedSeparator))
		for _, a := range attachmentsOf(row.Attachments) {
			files++
			fileBytes += a.Bytes
		}
	}
	return bytes <= session.MaxPromptBytes && files <= attachment.MaxPromptFiles && fileBytes <= attachment.MaxPromptBytes
}

// joinedFit refuses new content for a collected prompt if the joined prompts would then be too
// large.
func (s *sessionTx) joinedFit(ctx context.Context, p dbsqlc.Prompt, content string) error {
	if p.Mode != string(session.Collect) {
		return nil
	}
	head := p
	if p.JoinedTo != "" {
		var err error
		if head, err = s.promptGet(ctx, p.JoinedTo); err != nil {
			return err
		}
	}
	rows, err := s.joinedTo(ctx, head)
	if err != nil {
		return err
	}
	bytes := len(content) - len(p.Content) + len(head.Content)
	for _, row := range rows {
		bytes += len(row.Content) + len(joinedSeparator)
	}
	if len(rows) > 0 && bytes > session.MaxPromptBytes {
		return failure.Errorf(failure.TooLarge, "content: the %d prompts that are joined would have %d bytes; at most %d are allowed", len(rows)+1, bytes, session.MaxPromptBytes)
	}
	return nil
}

// joinedTo returns the prompts that are joined to an unfinished one.
func (s *sessionTx) joinedTo(ctx context.Context, p dbsqlc.Prompt) ([]dbsqlc.Prompt, error) {
	if p.Mode != string(session.Collect) {
		return nil, nil
	}
	return s.q.PromptsJoined(ctx, s, &dbsqlc.PromptsJoinedParams{SessionID: s.row.ID, ID: p.ID})
}

// joinInto merges a prompt and those that are joined to it into one prompt for the agent.
func joinInto(p *session.Prompt, joined []dbsqlc.Prompt) {
	for _, row := range joined {
		p.Content += joinedSeparator + row.Content
		for _, a := range attachmentsOf(row.Attachments) {
			if slices.ContainsFunc(p.Attachments, func(b attachment.Attachment) bool { return a.ID == b.ID }) {
				continue // the same file
			}
			a.Name = unusedName(p.Attachments, a.Name)
			p.Attachments = append(p.Attachments, a)
		}
	}
}

// unusedName returns the name of a file, changed if another file has that name. As in a single
// prompt, case is ignored and the length is bounded. A name that is too long is truncated at the
// beginning, since the end contains the file's extension.
func unusedName(files []attachment.Attachment, name string) string {
	unused := name
	for i := 2; slices.ContainsFunc(files, func(f attachment.Attachment) bool { return strings.EqualFold(f.Name, unused) }); i++ {
		number := strconv.Itoa(i) + "-"
		rest := name[max(0, len(number)+len(name)-attachment.MaxNameBytes):]
		for !utf8.RuneStart(rest[0]) {
			rest = rest[1:]
		}
		unused = number + rest
	}
	return unused
}

// reportJoined appends the events of joined prompts that changed with their first one, and returns
// the changes of the queue.
func (s *sessionTx) reportJoined(rows []dbsqlc.Prompt, change event.QueueChangeKind) ([]event.QueueChange, error) {
	slices.SortFunc(rows, func(a, b dbsqlc.Prompt) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	changes := make([]event.QueueChange, len(rows))
	for i, row := range rows {
		if err := s.addPrompt(row); err != nil {
			return nil, err
		}
		changes[i] = queueChange(change, itemOf(row))
	}
	return changes, nil
}

// joinedEnd ends the prompts that are joined to a prompt that has ended, and returns the changes of
// the queue.
func (s *sessionTx) joinedEnd(ctx context.Context, p dbsqlc.Prompt) ([]event.QueueChange, error) {
	if p.Mode != string(session.Collect) {
		return nil, nil
	}
	rows, err := s.q.PromptsJoinedEnd(ctx, s, &dbsqlc.PromptsJoinedEndParams{
		SessionID: s.row.ID, ID: p.ID, Status: p.Status, Reason: session.ReasonCollected, At: s.now,
	})
	if err != nil {
		return nil, err
	}
	return s.reportJoined(rows, event.QueueRemoved)
}

// joinedQueue requeues the prompts that are joined to a prompt, which was requeued too, and returns
// the changes of the queue.
func (s *sessionTx) joinedQueue(ctx context.Context, p dbsqlc.Prompt) ([]event.QueueChange, error) {
	if p.Mode != string(session.Collect) {
		return nil, nil
	}
	rows, err := s.q.PromptsJoinedQueue(ctx, s, &dbsqlc.PromptsJoinedQueueParams{SessionID: s.row.ID, ID: p.ID, Reason: p.Reason})
	if err != nil {
		return nil, err
	}
	return s.reportJoined(rows, event.QueueAdded)
}

// rejoin makes the first of the prompts that were joined to p, which has left the queue, the new
// head of the others. It returns the changes of the queue.
func (s *sessionTx) rejoin(ctx context.Context, p dbsqlc.Prompt) ([]event.QueueChange, error) {
	if p.Mode != string(session.Collect) {
		return nil, nil
	}
	rows, err := s.q.PromptsRejoin(ctx, s, &dbsqlc.PromptsRejoinParams{SessionID: s.row.ID, ID: p.ID})
	if err != nil {
		return nil, err
	}
	return s.reportJoined(rows, event.QueueUpdated)
}

// PromptsCollected ends the collection of prompts of a session if its time has passed. It returns
// the next prompt if its workflow must be signalled, like SessionRelease. Otherwise, because more
// prompts have joined or clocks differ, it returns the remaining time.
func (db *DB) PromptsCollected(ctx context.Context, sessionID string) (next *session.Prompt, left time.Duration, err error) {
	err = db.inSession(ctx, "end a collection", sessionID, func(s *sessionTx) error {
		next, left = nil, 0
		until, err := s.q.PromptsGatherEnd(ctx, s, sessionID)
		if isNoRows(err) || err == nil && until == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if left = until.Sub(s.now); left > 0 {
			return nil
		}
		left = 0
		next, err = s.gathered(ctx)
		return err
	})
	return next, left, err
}

// gathered ends a collection, and returns the next prompt if its workflow must be signalled.
func (s *sessionTx) gathered(ctx context.Context) (*session.Prompt, error) {
	rows, err := s.q.PromptsGathered(ctx, s, s.row.ID)
	if err != nil {
		return nil, err
	}
	changes, err := s.reportJoined(rows, event.QueueUpdated)
	if err != nil {
		return nil, err
	}
	head, err := promptHead(ctx, s.q, s, s.row.ID)
	if err != nil {
		return nil, err
	}
	if err := s.addQueue(headOf(head), changes...); err != nil || s.held() {
		return nil, err
	}
	return s.released(ctx, head)
}

// collecting reports whether prompts are being collected, and whether others are queued.
func collecting(head []dbsqlc.PromptHeadRow) (collecting, queued bool) {
	if len(head) == 0 {
		return false, false
	}
	return head[0].Collecting > 0, head[0].Queued > head[0].Collecting
}
