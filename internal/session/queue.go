package session

import (
	"cmp"
	"slices"
)

// seenLimit bounds the ids that a queue remembers to ignore repeated signals.
// The row in Postgres decides; this only spares activities.
const seenLimit = 256

// Queue is the order in which a workflow serves prompts, as far as it knows it: by rank and ordinal, each once. Prompts are promoted
// without it: the claim of one that is not first names the first.
// The zero value is an empty queue. It is not safe for concurrent use.
type Queue struct {
	waiting []QueuedPrompt
	seen    []string // oldest first
}

// QueuedPrompt names a prompt whose content is in Postgres.
type QueuedPrompt struct {
	ID      string `json:"id"`
	Ordinal int64  `json:"ordinal"`
	Rank    int64  `json:"rank,omitempty"` // comes before the ordinal
}

// NewQueue returns a queue that holds waiting and ignores what was seen lately.
func NewQueue(waiting []QueuedPrompt, seen []string) *Queue {
	q := &Queue{seen: slices.Clone(seen)}
	for _, p := range waiting {
		q.insert(p)
	}
	return q
}

// Push adds p in its place. It reports false where p waits already or was taken
// lately, so that a signal that arrives twice changes nothing.
func (q *Queue) Push(p QueuedPrompt) bool {
	if slices.Contains(q.seen, p.ID) {
		return false
	}
	return q.insert(p)
}

func (q *Queue) insert(p QueuedPrompt) bool {
	if q.Has(p.ID) {
		return false
	}
	at := slices.IndexFunc(q.waiting, func(w QueuedPrompt) bool {
		return cmp.Or(cmp.Compare(w.Rank, p.Rank), cmp.Compare(w.Ordinal, p.Ordinal)) > 0
	})
	if at < 0 {
		at = len(q.waiting)
	}
	q.waiting = slices.Insert(q.waiting, at, p)
	return true
}

// Pop takes the prompt that is next and remembers it as seen.
func (q *Queue) Pop() (QueuedPrompt, bool) {
	if len(q.waiting) == 0 {
		return QueuedPrompt{}, false
	}
	p := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.seen = append(q.seen, p.ID)
	if over := len(q.seen) - seenLimit; over > 0 {
		q.seen = slices.Delete(q.seen, 0, over)
	}
	return p, true
}

// Requeue puts p in its place though it was taken before: its row says that it
// waits, as it does after a run that never reached the agent.
func (q *Queue) Requeue(p QueuedPrompt) {
	q.seen = slices.DeleteFunc(q.seen, func(id string) bool { return id == p.ID })
	q.insert(p)
}

// First puts p before all others, wherever it was: its row says that it is next.
func (q *Queue) First(p QueuedPrompt) {
	same := func(id string) bool { return id == p.ID }
	q.seen = slices.DeleteFunc(q.seen, same)
	q.waiting = slices.Insert(slices.DeleteFunc(q.waiting, func(w QueuedPrompt) bool { return same(w.ID) }), 0, p)
}

// Forget drops the prompts that wait up to an ordinal: an attendant has taken them.
func (q *Queue) Forget(ordinal int64) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w QueuedPrompt) bool { return w.Ordinal <= ordinal })
}

// Has reports whether the prompt waits.
func (q *Queue) Has(id string) bool {
	return slices.ContainsFunc(q.waiting, func(w QueuedPrompt) bool { return w.ID == id })
}

// Len is the number of prompts that wait.
func (q *Queue) Len() int { return len(q.waiting) }

// IDs are the prompts that wait, in order.
func (q *Queue) IDs() []string {
	ids := make([]string, len(q.waiting))
	for i, p := range q.waiting {
		ids[i] = p.ID
	}
	return ids
}

// Seen are the ids taken lately, oldest first, to hand to the next run of a workflow.
func (q *Queue) Seen() []string { return slices.Clone(q.seen) }
