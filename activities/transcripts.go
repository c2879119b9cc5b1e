package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// transcriptStore has the stored transcripts.
type transcriptStore interface {
	TranscriptPositions(ctx context.Context, sessionID string) ([]session.TranscriptPosition, error)
	// TranscriptContent reads what a position describes in pieces of at most 1 MiB, each valid until the next.
	TranscriptContent(ctx context.Context, sessionID string, p session.TranscriptPosition) iter.Seq2[[]byte, error]
	TranscriptLimitsReached(ctx context.Context, sessionID string) ([]session.TranscriptLimit, error)
}

// transcripts moves stored transcripts into sandboxes and manifests.
type transcripts struct {
	*Config
	store transcriptStore
}

const (
	// putBatch is how many bytes one exec writes into a sandbox, or one file that is larger.
	putBatch = 64 << 20
	// putTimeout bounds such an exec, and a second more for each MiB.
	putTimeout = 5 * time.Minute
)

// storedFile describes a stored transcript, of which it holds one piece in memory.
func (g *transcripts) storedFile(ctx context.Context, sessionID string, p session.TranscriptPosition) (session.ManifestFile, error) {
	sum := sha256.New()
	for piece, err := range g.store.TranscriptContent(ctx, sessionID, p) {
		if err != nil {
			return session.ManifestFile{}, stored(err)
		}
		sum.Write(piece)
	}
	return session.ManifestFile{Path: p.Path, Size: p.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// storedManifest lists the transcripts that are stored.
func (g *transcripts) storedManifest(ctx context.Context, b *session.Bundle) error {
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

// putTranscripts writes stored transcripts into a sandbox piece by piece: what is in memory is one piece of one file
// and what the exec's stdin buffers.
func (g *transcripts) putTranscripts(ctx context.Context, sb *sandbox.Sandbox, sessionID string, positions []session.TranscriptPosition) error {
	files := make([]runner.PutFile, len(positions))
	for i, p := range positions {
		files[i] = runner.PutFile{Path: p.Path, Size: p.Size, Content: g.store.TranscriptContent(ctx, sessionID, p)}
	}
	return put(ctx, sb, files)
}

// put writes files into a sandbox, each whole or not at all.
func put(ctx context.Context, sb *sandbox.Sandbox, files []runner.PutFile) error {
	for len(files) > 0 {
		n, size := 1, files[0].Size
		for n < len(files) && size+files[n].Size <= putBatch {
			size += files[n].Size
			n++
		}
		if err := putOnce(ctx, sb, files[:n], putTimeout+time.Duration(size>>20)*time.Second); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

func putOnce(ctx context.Context, sb *sandbox.Sandbox, files []runner.PutFile, timeout time.Duration) error {
	process, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().Put(), Timeout: timeout})
	if err != nil {
		return err
	}
	defer process.Close() // only cuts the link
	if err := errors.Join(runner.WritePut(process.Stdin, files), process.Stdin.Close()); err != nil {
		return err
	}
	waited, cancel := context.WithTimeout(ctx, timeout+time.Second)
	defer cancel()
	code, err := process.Wait(waited)
	if err == nil && code != runner.ExitOK {
		err = fmt.Errorf("the runner's command ended with %d", code)
	}
	return err
}

// putFiles are files in memory as put takes them.
func putFiles(files []session.TranscriptFile) []runner.PutFile {
	out := make([]runner.PutFile, len(files))
	for i, f := range files {
		out[i] = runner.PutFile{Path: f.Path, Size: int64(len(f.Data)), Content: func(yield func([]byte, error) bool) { yield(f.Data, nil) }}
	}
	return out
}

// wholeTranscripts reads the transcripts of a session into memory, to be rewritten. It refuses those that are too
// large, or not stored whole: what is not stored would be lost.
func (g *transcripts) wholeTranscripts(ctx context.Context, sessionID string) ([]session.TranscriptFile, error) {
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
	cut := slices.ContainsFunc(positions, func(p session.TranscriptPosition) bool { return p.Cut })
	switch {
	case cut || len(unstoredFiles(reached)) > 0:
		return nil, final(Refused, errors.New("the transcripts of the session are not stored whole, because they reached a limit; they cannot be reverted"))
	case total > session.MaxRevertBytes:
		return nil, final(Refused, fmt.Errorf("the transcripts of the session have %d bytes; at most %d can be reverted", total, session.MaxRevertBytes))
	}
	files := make([]session.TranscriptFile, len(positions))
	for i, p := range positions {
		files[i] = session.TranscriptFile{Path: p.Path, Version: p.Version, Data: make([]byte, 0, p.Size)}
		for piece, err := range g.store.TranscriptContent(ctx, sessionID, p) {
			if err != nil {
				return nil, stored(err)
			}
			files[i].Data = append(files[i].Data, piece...)
		}
	}
	return files, nil
}

// unstoredFiles says for people which files have no stored bytes at all.
func unstoredFiles(reached []session.TranscriptLimit) []string {
	var out []string
	if slices.Contains(reached, session.TranscriptLimitFiles) {
		out = append(out, "transcript files beyond the number that is stored of a session")
	}
	if slices.Contains(reached, session.TranscriptLimitPath) {
		out = append(out, fmt.Sprintf("transcript files whose path is no UTF-8 or longer than %d bytes", session.MaxTranscriptPath))
	}
	return out
}
