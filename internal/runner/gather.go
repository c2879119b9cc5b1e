package runner

import "github.com/overwinter-dev/overwinter/internal/workspacefile"

// changeCost is the memory of a change in addition to its content and path.
const changeCost = 256

// FileGatherer collects a runner's reports on the workspace in batches.
type FileGatherer struct {
	batch workspacefile.Batch
	// Bytes estimates the memory of the gathered changes.
	Bytes int
	any   bool
}

// Gather adds a message and reports whether it concerns the workspace.
func (g *FileGatherer) Gather(m Message) bool {
	switch m := m.(type) {
	case *FilesBegun:
		g.batch.Lineage, g.batch.Base = m.Lineage, m.Base
	case *FileChanged:
		g.batch.Changes = append(g.batch.Changes, m.Change)
		g.Bytes += len(m.Data) + len(m.Path) + changeCost
	case *FilesBounded:
		g.batch.BoundedSeq = m.Seq
	case *Diff:
		g.batch.Diff = &m.Diff
	default:
		return false
	}
	g.any = true
	return true
}

// Take returns the batch and begins the next, in the same lineage.
func (g *FileGatherer) Take() (workspacefile.Batch, bool) {
	b, any := g.batch, g.any
	g.batch.Changes, g.batch.BoundedSeq, g.batch.Diff = nil, 0, nil
	g.Bytes, g.any = 0, false
	return b, any
}

// NewFileGatherer returns a gatherer for a session whose stored files are at a position.
func NewFileGatherer(p workspacefile.Position, generation int64) FileGatherer {
	return FileGatherer{batch: workspacefile.Batch{
		SessionID: p.Session, Generation: generation, Lineage: p.Lineage, Base: p.Base,
	}}
}
