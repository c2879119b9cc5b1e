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

// Prompts of the mode collect wait for others of that mode for a time, collect_until. Those that come meanwhile are joined to the first,
// if nothing has come between: they are the last of the queue, in a row, with the same rank and the same time. No run gets
// them until that time is over, or another prompt comes after them, or they are promoted.
//
//	collect ──▶ waits ── another collect ──▶ joined, and both wait as long again
//	              └─ time over · another prompt · promote ──▶ queued ── claim ──▶ processing, all of them in one run
//
// The rows decide, so that nothing is lost with an api that has a timer for the end of the time: relays signal for them then.

// joinedSeparator is between the contents of joined prompts.
const joinedSeparator = "\n\n"

// place is where a new prompt comes in the queue.
type place struct {
	joined string // the prompt that it is joined to
	rank   int64
	until  *time.Time // collected
}

// placeOf decides about the place of a new prompt in a queue of which the head is given. If prompts are collected and it does not join them, that
// is over, unless it comes before them.
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

// joins reports whether a prompt joins those that are collected: together they stay within the bounds of one prompt, and what follows a lost
// outcome is the same for all.
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

// joinedFit refuses a new content of a prompt that is collected if those that are joined have too much then.
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

// joinedTo are the prompts that are joined to one that is not over.
func (s *sessionTx) joinedTo(ctx context.Context, p dbsqlc.Prompt) ([]dbsqlc.Prompt, error) {
	if p.Mode != string(session.Collect) {
		return nil, nil
	}
	return s.q.PromptsJoined(ctx, s, &dbsqlc.PromptsJoinedParams{SessionID: s.row.ID, ID: p.ID})
}

// joinInto makes one prompt, as the agent gets it, of one and those that are joined to it.
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

// unusedName is the name of a file, or a similar one if another file has it: as in a single prompt, whatever the case of its letters, and within
// the bound of a name. What does not fit is cut from the beginning, since the end says what the file is.
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

// reportJoined appends the events of prompts that have changed with the one that they are joined to, and returns the changes of the queue.
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

// joinedEnd ends what is joined to a prompt that has ended, and returns the changes of the queue.
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

// joinedQueue puts what is joined to a prompt back into the queue, as the prompt was, and returns the changes of the queue.
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

// rejoin joins what was joined to a prompt that has left the queue to the first of them, and returns the changes of the queue.
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

// PromptsCollected ends the collection of prompts of a session whose time is up. The prompt that is
// next is returned if its workflow is to be notified of it, as SessionRelease does. If the time is
// not over, because more prompts have joined or clocks differ, it returns what is left of it.
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

// gathered ends a collection, and returns the prompt that is next if its workflow is to be notified.
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

// collecting reports whether prompts are collected, and queued whether others wait.
func collecting(head []dbsqlc.PromptHeadRow) (collecting, queued bool) {
	if len(head) == 0 {
		return false, false
	}
	return head[0].Collecting > 0, head[0].Queued > head[0].Collecting
}
