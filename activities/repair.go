package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// repairTranscripts repairs a restored sandbox from the stored transcripts, and reports the result.
func (g *restores) repairTranscripts(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, bundle bundle.Bundle, found verification, kept keptTranscripts, fresh bool) (receipt.Receipt, error) {
	r := receipt.Receipt{Kind: receipt.Full, Missing: []string{}}
	if bundle.ID == "" {
		r.Kind = receipt.Fresh
		return r, nil
	}
	agent, err := g.updateTranscripts(ctx, sb, in, kept.positions, doubtfulFiles(kept.positions, bundle.Manifest, found.differing))
	if err != nil {
		return r, err
	}
	r.Missing = append(r.Missing, agent.missing...)
	r.Unchecked = agent.unchecked
	if fresh {
		r.Missing = append(r.Missing, unstoredFiles(kept.reached)...)
	} else {
		r.Unchecked = append(r.Unchecked, unstoredFiles(kept.reached)...)
		r.Missing = append(r.Missing, found.workspace...)
		r.Unchecked = append(r.Unchecked, found.unchecked...)
	}
	switch {
	case fresh:
		r.Missing = append(r.Missing, "workspace")
		r.Kind = receipt.Partial
		if len(bundle.Manifest.AgentFiles) == 0 {
			r.Kind = receipt.Fresh
		}
		return r, nil
	case len(r.Missing) > 0 || len(bundle.Manifest.Lost) > 0:
		r.Kind = receipt.Partial
	case !bundle.Verified, agent.changed, len(r.Unchecked) > 0:
		r.Kind = receipt.Unverified
	}
	r.Missing = append(r.Missing, bundle.Manifest.Lost...)
	return r, nil
}

// keptTranscripts are the stored transcripts of a session, with the limits that kept others from being stored whole.
type keptTranscripts struct {
	positions []transcript.Position
	reached   []transcript.Limit
}

func (g *restores) keptTranscripts(ctx context.Context, sessionID string) (k keptTranscripts, err error) {
	err = inParallel(
		func() (err error) { k.positions, err = g.store.TranscriptPositions(ctx, sessionID); return stored(err) },
		func() (err error) {
			k.reached, err = g.store.TranscriptLimitsReached(ctx, sessionID)
			return stored(err)
		},
	)
	return k, err
}

// agentFiles is the result of a restore for the agent's files.
type agentFiles struct {
	missing   []string // files that could not be restored
	unchecked []string // files that were not compared, and versions that diverge from the stored ones
	changed   bool     // some files were written, or are newer than the manifest
}

// updateTranscripts makes the agent's files in a sandbox at least as new as the stored ones. It
// writes a file that is missing or is a prefix of the stored one, and keeps one that continues it.
// If the two diverge, it writes the stored one and keeps the other next to it.
func (g *restores) updateTranscripts(
	ctx context.Context, sb *sandbox.Sandbox, in SandboxRequest, positions []transcript.Position, doubtful map[string]bool,
) (agentFiles, error) {
	var out agentFiles
	if len(doubtful) == 0 {
		return out, nil
	}
	out.changed = true
	var files []transcript.Position
	var want manifest.Manifest
	for _, p := range positions {
		if !doubtful[p.Path] {
			continue
		}
		delete(doubtful, p.Path)
		file, err := g.storedFile(ctx, in.SessionID, p)
		if err != nil {
			return out, err
		}
		files, want.AgentFiles = append(files, p), append(want.AgentFiles, file)
	}
	out.missing = slices.Sorted(maps.Keys(doubtful))
	v, err := g.verifyFiles(ctx, sb, want)
	if err != nil {
		return out, err
	}
	var write []transcript.Position
	for i, p := range files {
		longer := slices.Contains(v.Longer, p.Path)
		switch {
		case p.Cut && longer:
			out.unchecked = append(out.unchecked, fmt.Sprintf("%s: only its first %d bytes are stored and were compared", p.Path, p.Size))
		case p.Cut:
			out.missing = append(out.missing, fmt.Sprintf("%s: the part after its first %d bytes was not stored, because it exceeds a limit", p.Path, p.Size))
		}
		if slices.Contains(v.Missing, p.Path) {
			write = append(write, p)
			continue
		}
		if !slices.Contains(v.Mismatched, p.Path) {
			continue // equal to the stored file, or a continuation of it
		}
		older, err := g.isOlder(ctx, in.SessionID, p, want.AgentFiles[i], v.Found)
		if err != nil {
			return out, err
		}
		if !older {
			kept := fmt.Sprintf("%s.before-restore-%d", p.Path, in.Generation)
			if err := g.copyFile(ctx, sb, p.Path, kept); err != nil {
				return out, err
			}
			out.unchecked = append(out.unchecked, fmt.Sprintf("%s: differs from the stored transcript, which is used; the sandbox's version is %s", p.Path, kept))
		}
		write = append(write, p)
	}
	if len(write) == 0 {
		return out, nil
	}
	if err := g.checkUnused(ctx, in); err != nil {
		return out, err
	}
	if err := g.putTranscripts(ctx, sb, in.SessionID, write); err != nil {
		return out, fmt.Errorf("put transcripts: %w", err)
	}
	return out, nil
}

// doubtfulFiles returns the files of an agent that may differ between the sandbox and the store:
// those that differ from the manifest, and those that were stored after the manifest was taken.
func doubtfulFiles(positions []transcript.Position, m manifest.Manifest, differing []string) map[string]bool {
	sizes := make(map[string]int64, len(m.AgentFiles))
	for _, f := range m.AgentFiles {
		sizes[f.Path] = f.Size
	}
	doubtful := make(map[string]bool, len(differing))
	for _, path := range differing {
		doubtful[path] = true
	}
	for _, p := range positions {
		size, ok := sizes[p.Path]
		whole := p.Cut && size > p.Size // the manifest describes more than the stored part
		if !ok || size != p.Size && !whole {
			doubtful[p.Path] = true
		}
	}
	return doubtful
}

// isOlder reports whether the file in a sandbox is a prefix of the stored transcript.
func (g *restores) isOlder(ctx context.Context, sessionID string, p transcript.Position, whole manifest.File, found []manifest.File) (bool, error) {
	i := slices.IndexFunc(found, func(m manifest.File) bool { return m.Path == p.Path })
	if i < 0 || found[i].Size < 0 || found[i].Size > p.Size {
		return false, nil
	}
	if found[i].Size == p.Size {
		return found[i] == whole, nil
	}
	p.Size = found[i].Size
	beginning, err := g.storedFile(ctx, sessionID, p)
	return found[i] == beginning, err
}

// copyFile copies a file in a sandbox. It keeps an existing copy, which is of an earlier attempt
// that may have replaced the file since.
func (g *restores) copyFile(ctx context.Context, sb *sandbox.Sandbox, from, to string) error {
	script := `[ -e "$2" ] || { cp -p -- "$1" "$2.new" && mv -- "$2.new" "$2"; }`
	result, err := sb.Run(ctx, sandbox.RunSpec{Argv: []string{"sh", "-c", script, "keep", from, to}, Timeout: commandTimeout})
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("cp ended with %d: %s", result.Code, result.Stderr)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", from, err)
	}
	return nil
}
