package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// transcriptStore reads the stored transcripts.
type transcriptStore interface {
	TranscriptPositions(ctx context.Context, sessionID string) ([]transcript.Position, error)
	// TranscriptContent reads the content up to a position in pieces of at most 1 MiB, each valid
	// until the next.
	TranscriptContent(ctx context.Context, sessionID string, p transcript.Position) iter.Seq2[[]byte, error]
	TranscriptLimitsReached(ctx context.Context, sessionID string) ([]transcript.Limit, error)
}

// transcripts moves stored transcripts into sandboxes and manifests.
type transcripts struct {
	*Config
	store transcriptStore
}

// storedFile describes a stored transcript. It holds one piece in memory.
func (g *transcripts) storedFile(ctx context.Context, sessionID string, p transcript.Position) (manifest.File, error) {
	sum := sha256.New()
	for piece, err := range g.store.TranscriptContent(ctx, sessionID, p) {
		if err != nil {
			return manifest.File{}, stored(err)
		}
		sum.Write(piece)
	}
	return manifest.File{Path: p.Path, Size: p.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// storedManifest lists the transcripts that are stored.
func (g *transcripts) storedManifest(ctx context.Context, b *bundle.Bundle) error {
	positions, err := g.store.TranscriptPositions(ctx, b.SessionID)
	if err != nil {
		return stored(err)
	}
	for _, p := range positions {
		file, err := g.storedFile(ctx, b.SessionID, p)
		if err != nil {
			return err
		}
		b.Manifest.AgentFiles = append(b.Manifest.AgentFiles, file)
	}
	b.Manifest.LastSeq, err = g.Log.Position(ctx, b.SessionID)
	return stored(err)
}

// putTranscripts writes stored transcripts into a sandbox piece by piece. One piece of one file is
// in memory, in addition to the buffer of the exec's stdin.
func (g *transcripts) putTranscripts(ctx context.Context, sb *sandbox.Sandbox, sessionID string, positions []transcript.Position) error {
	files := make([]runner.PutFile, len(positions))
	for i, p := range positions {
		files[i] = runner.PutFile{Path: p.Path, Size: p.Size, Content: g.store.TranscriptContent(ctx, sessionID, p)}
	}
	return runnerexec.Put(ctx, sb, files)
}

// wholeTranscripts reads the transcripts of a session into memory, to be rewritten. It refuses
// transcripts that are too large, or stored incompletely, because the rest would be lost.
func (g *transcripts) wholeTranscripts(ctx context.Context, sessionID string) ([]transcript.File, error) {
	positions, err := g.store.TranscriptPositions(ctx, sessionID)
	if err != nil {
		return nil, stored(err)
	}
	reached, err := g.store.TranscriptLimitsReached(ctx, sessionID)
	if err != nil {
		return nil, stored(err)
	}
	var total int64
	for _, p := range positions {
		total += p.Size
	}
	cut := slices.ContainsFunc(positions, func(p transcript.Position) bool { return p.Cut })
	switch {
	case cut || len(unstoredFiles(reached)) > 0:
		return nil, final(Refused, errors.New("the transcripts of the session are not stored whole, because they reached a limit; they cannot be reverted"))
	case total > transcript.MaxRevertBytes:
		return nil, final(Refused, fmt.Errorf("the transcripts of the session have %d bytes; at most %d can be reverted", total, transcript.MaxRevertBytes))
	}
	files := make([]transcript.File, len(positions))
	for i, p := range positions {
		files[i] = transcript.File{Path: p.Path, Version: p.Version, Data: make([]byte, 0, p.Size)}
		for piece, err := range g.store.TranscriptContent(ctx, sessionID, p) {
			if err != nil {
				return nil, stored(err)
			}
			files[i].Data = append(files[i].Data, piece...)
		}
	}
	return files, nil
}

// unstoredFiles lists, for people, the files without any stored bytes.
func unstoredFiles(reached []transcript.Limit) []string {
	var out []string
	if slices.Contains(reached, transcript.LimitFiles) {
		out = append(out, "transcript files beyond the number that is stored of a session")
	}
	if slices.Contains(reached, transcript.LimitPath) {
		out = append(out, fmt.Sprintf("transcript files whose path is no UTF-8 or longer than %d bytes", transcript.MaxPath))
	}
	return out
}
