package session

import (
	"cmp"
	"slices"
)

// seenLimit bounds the ids that a queue remembers to ignore repeated signals. The row in Postgres
// decides; this only saves activities.
const seenLimit = 256

// Queue is a workflow's view of the order of prompts: by rank and ordinal, each once. It is not
// updated when prompts are promoted: a claim of a prompt that is not first returns the first one.
// The zero value is an empty queue. It is not safe for concurrent use.
type Queue struct {
	waiting []QueuedPrompt
	seen    []string // oldest first
}

// QueuedPrompt identifies a prompt whose content is in Postgres.
type QueuedPrompt struct {
	ID      string `json:"id"`
	Ordinal int64  `json:"ordinal"`
	Rank    int64  `json:"rank,omitempty"` // takes precedence over the ordinal
}

// NewQueue returns a queue that contains waiting and ignores recently seen ids.
func NewQueue(waiting []QueuedPrompt, seen []string) *Queue {
	q := &Queue{seen: slices.Clone(seen)}
	for _, p := range waiting {
		q.insert(p)
	}
	return q
}

// Push adds p at its place. It returns false if p is already queued or was recently taken, so that
// a duplicate signal changes nothing.
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

// Pop removes the next prompt and records it as seen.
func (q *Queue) Pop() (QueuedPrompt, bool) {
	if len(q.waiting) == 0 {
		return QueuedPrompt{}, false
	}
	p := q.waiting[0]
	q.Take(p.ID)
	return p, true
}

// Next returns the prompt that Pop would remove, or the zero value.
func (q *Queue) Next() QueuedPrompt {
	if len(q.waiting) == 0 {
		return QueuedPrompt{}
	}
	return q.waiting[0]
}

// Take removes a prompt, which need not be queued, and records it as seen.
func (q *Queue) Take(id string) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w QueuedPrompt) bool { return w.ID == id })
	q.seen = append(q.seen, id)
	if excess := len(q.seen) - seenLimit; excess > 0 {
		q.seen = slices.Delete(q.seen, 0, excess)
	}
}

// Requeue adds p at its place although it was taken before, because its row is queued, for example
// after a run that never reached the agent.
func (q *Queue) Requeue(p QueuedPrompt) {
	q.seen = slices.DeleteFunc(q.seen, func(id string) bool { return id == p.ID })
	q.insert(p)
}

// First moves p before all others, because it is next according to its row.
func (q *Queue) First(p QueuedPrompt) {
	same := func(id string) bool { return id == p.ID }
	q.seen = slices.DeleteFunc(q.seen, same)
	q.waiting = slices.Insert(slices.DeleteFunc(q.waiting, func(w QueuedPrompt) bool { return same(w.ID) }), 0, p)
}

// Forget drops the queued prompts up to an ordinal, which an attendant has claimed.
func (q *Queue) Forget(ordinal int64) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w QueuedPrompt) bool { return w.Ordinal <= ordinal })
}

// Has reports whether the prompt is queued.
func (q *Queue) Has(id string) bool {
	return slices.ContainsFunc(q.waiting, func(w QueuedPrompt) bool { return w.ID == id })
}

// Len returns the number of queued prompts.
func (q *Queue) Len() int { return len(q.waiting) }

// IDs returns the queued prompts in order.
func (q *Queue) IDs() []string {
	ids := make([]string, len(q.waiting))
	for i, p := range q.waiting {
		ids[i] = p.ID
	}
	return ids
}

// Seen returns the recently taken ids, oldest first, for the next run of a workflow.
func (q *Queue) Seen() []string { return slices.Clone(q.seen) }
