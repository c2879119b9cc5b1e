package why

import (
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/receipt"
)

var receiptCodes = map[receipt.Kind]Code{
	receipt.Full: RestoredFull, receipt.Partial: RestoredPartial, receipt.Fresh: RestoredFresh, receipt.Unverified: RestoredUnverified,
}

// receipt explains the receipt of the newest transition that has one.
func (c *chain) receipt() {
	at := len(c.Transitions) - 1
	for ; at >= 0 && c.Transitions[at].Receipt == nil; at-- {
		continue
	}
	if at < 0 {
		c.row(NeverRestored, time.Time{}, about("session", c.Session.ID), "the session has no receipt: it was not restored, or only long ago")
		c.created()
		return
	}
	t := c.Transitions[at]
	c.out.ID = strconv.FormatInt(t.No, 10)
	r := t.Receipt
	c.row(receiptCodes[r.Kind], t.At, about("transition", c.out.ID), "the restore at %s was %s%s", clock(t.At), r.Kind, c.lacks(*r))
	if r.HandedFrom != "" {
		c.row(HandedOver, t.At, nil, "the session was forked with another agent, which does not have the memory of %s and received the conversation as a note", r.HandedFrom)
		if len(r.Missing) > 1 {
			c.source(t)
		}
	} else {
		c.source(t)
	}
	c.steps(at)
}

func (*chain) lacks(r receipt.Receipt) string {
	text := ""
	if n := len(r.Missing); n > 0 {
		text = "; missing or different: " + quoted(r.Missing[0])
		if n > 1 {
			text += " and " + strconv.Itoa(n-1) + " more"
		}
	}
	if len(r.Unchecked) > 0 {
		text += "; not compared: " + quoted(r.Unchecked[0])
	}
	return text
}

// source adds the source of the restore.
func (c *chain) source(t Step) {
	if t.Receipt.Kind == receipt.Full {
		return
	}
	var used *Bundle
	for i, b := range c.Bundles {
		if b.Generation < t.Generation {
			used = &c.Bundles[i]
			break
		}
	}
	if used == nil {
		c.row(NothingToRestore, t.At, nil, "the session had no bundle before its sandbox of generation %d", t.Generation)
		return
	}
	ref := about("bundle", used.ID)
	switch {
	case t.Receipt.Moved != "":
		c.row(Imported, used.CreatedAt, ref, "the session was imported at %s from %s, without a snapshot", clock(used.CreatedAt), t.Receipt.Moved)
	case !used.HasSnapshot:
		c.row(SnapshotFailed, used.CreatedAt, ref, "the bundle of generation %d, of %s, has transcripts and no snapshot", used.Generation, clock(used.CreatedAt))
	case used.SnapshotGone:
		c.row(SnapshotGone, used.CreatedAt, ref, "the snapshot of the bundle of generation %d, of %s, is lost or condemned", used.Generation, clock(used.CreatedAt))
	case !used.Verified:
		c.row(BundleUnverified, used.CreatedAt, ref, "the bundle of generation %d was not verified when it was saved", used.Generation)
	}
	if last := c.worked(t.Generation); last > used.Generation {
		c.row(BundleOlder, used.CreatedAt, ref, "the newest bundle is of generation %d, of %s, and the session has worked in generation %d since", used.Generation, clock(used.CreatedAt), last)
	}
}

// worked returns the newest earlier generation whose sandbox was ready.
func (c *chain) worked(before int64) int64 {
	for _, b := range c.Sandboxes {
		if b.Generation < before && !b.ReadyAt.IsZero() {
			return b.Generation
		}
	}
	return 0
}
