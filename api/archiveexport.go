package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// archiveExport sends an archive: the content that a worker has stored, with masked secrets, and
// the conversation.
type archiveExport struct {
	*archives
	archive bundle.Archive
	masker  *secret.Masker
	bundle  bundle.View
	session session.Session

	w       *portable.Writer
	missing []string
}

func (e *archiveExport) write(ctx context.Context, out io.Writer) error {
	e.w = portable.NewWriter(out)
	m := portable.Manifest{}
	var err error
	if e.archive.ID == "" { // there is only the conversation
		e.missing = append(e.missing, "workspace")
		err = e.storedFiles(ctx)
	} else {
		m, err = e.stored(ctx)
	}
	if err != nil {
		return err
	}
	if err := e.conversation(ctx); err != nil {
		return err
	}
	m.Release, m.CreatedAt, m.MemoryID = e.cfg.Version, time.Now().UTC(), e.archive.MemoryID
	m.Workspace, m.Home = portable.Workspace, portable.Home
	m.Source = portable.Source{
		SessionID: e.session.ID, BundleID: e.bundle.ID, PromptID: e.bundle.PromptID, Outcome: string(e.bundle.Outcome),
		Place: "the overwinter session " + e.session.ID,
	}
	m.Session = portable.Session{Agent: e.session.Agent, Title: e.masker.Text(e.session.Title), Metadata: e.masker.JSON(e.session.Metadata)}
	if e.session.Workspace != nil {
		ws := *e.session.Workspace
		ws.Setup = e.masker.Text(ws.Setup)
		if m.Session.Workspace, err = json.Marshal(ws); err != nil {
			return err
		}
	}
	if m.Session.Options, err = json.Marshal(e.session.Options); err != nil {
		return err
	}
	if m.Session.Secrets, err = e.usable(ctx, e.store, e.session); err != nil {
		return err
	}
	if e.session.Profile != "" {
		if m.Session.Profile, err = e.profileName(ctx); err != nil {
			return err
		}
		e.missing = append(e.missing, lacksProfile(m.Session.Profile))
	}
	m.AddMissing(slices.Concat(e.missing, e.bundle.Manifest.Lost)...)
	return e.w.Close(m)
}

// profileName returns the name of the session's profile, with its version. Ids are only valid in
// this installation.
func (e *archiveExport) profileName(ctx context.Context) (string, error) {
	id, version, err := profile.ParseRef(e.session.Profile)
	if err != nil {
		return e.session.Profile, nil //nolint:nilerr // of another release
	}
	p, err := e.store.ProfileGet(ctx, id, version)
	if failure.CodeOf(err) == failure.NoProfile {
		return e.session.Profile, nil
	}
	return p.Name + "@" + strconv.FormatInt(version, 10), err
}

// lacksProfile returns the note that an archive does not include the profile of its session.
func lacksProfile(name string) string { return "the profile " + name }

// stored writes the entries of the stored archive. Their order and the places of the agent's files
// are in its manifest, which comes last, so the archive is read twice.
func (e *archiveExport) stored(ctx context.Context) (portable.Manifest, error) {
	read := func(take func(portable.Entry, io.Reader) error) (portable.Manifest, error) {
		content := &pieces{next: e.archived.ArchiveContent(ctx, e.archive.ID)}
		defer content.close()
		return portable.Read(content, take)
	}
	m, err := read(func(portable.Entry, io.Reader) error { return nil })
	if err != nil {
		return m, err
	}
	paths := map[string]portable.Entry{}
	for _, entry := range m.Entries {
		paths[entry.Name] = entry
	}
	_, err = read(func(entry portable.Entry, r io.Reader) error { return e.entry(paths[entry.Name], r) })
	return m, err
}

// maxSearched bounds the files of a workspace that are searched for secrets as a whole.
const maxSearched = 64 << 20

func (e *archiveExport) entry(entry portable.Entry, r io.Reader) error {
	name, inWorkspace := entry.WorkspacePath()
	switch {
	case inWorkspace && e.masker.Text(name) != name:
		e.missing = append(e.missing, e.masker.Text(name)+" (named after a secret)")
		return nil
	case inWorkspace && entry.Link != "":
		return e.w.Link(name, entry.Link)
	case inWorkspace:
		if entry.Size > maxSearched {
			e.missing = append(e.missing, name+" (too large to be searched for secrets)")
			return nil
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if !bytes.Equal(e.masker.Bytes(data), data) {
			e.missing = append(e.missing, name+" (has the value of a secret)")
			return nil
		}
		return e.w.File(name, entry.Mode, entry.Size, bytes.NewReader(data))
	case entry.AgentFile():
		return e.agentFile(entry.Path, piecesOf(r))
	case entry.Name == portable.RepositoryEntry:
		return e.w.Repository(entry.Size, r)
	}
	return nil // the conversation is read from the store
}

// storedFiles writes the stored transcripts.
func (e *archiveExport) storedFiles(ctx context.Context) error {
	positions, err := e.transcripts.TranscriptPositions(ctx, e.session.ID)
	if err != nil {
		return err
	}
	for _, p := range positions {
		if err := e.agentFile(p.Path, e.transcripts.TranscriptContent(ctx, e.session.ID, p)); err != nil {
			return err
		}
	}
	return nil
}

// agentFile writes one of the agent's own files with masked secrets. The size of the result is only
// known afterwards, so the file is first written to a temporary file.
func (e *archiveExport) agentFile(path string, content iter.Seq2[[]byte, error]) (err error) {
	f, err := scratchFile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var size int64
	for piece, err := range masked(e.masker, content) {
		if err != nil {
			return err
		}
		n, err := f.Write(piece)
		size += int64(n)
		if err != nil {
			return err
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return e.w.AgentFile(path, size, f)
}

// archivedBlock is a line of the conversation of an archive.
type archivedBlock struct {
	Conversation string             `json:"conversation"`
	Block        conversation.Block `json:"block"`
}

// conversation writes the blocks of the bundle without separately stored data.
func (e *archiveExport) conversation(ctx context.Context) (err error) {
	f, err := scratchFile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var size int64
	images := false
	for cursor := ""; ; {
		page, next, err := e.bundles.ConversationAt(ctx, e.bundle.ID, maxBlockLimit, cursor)
		if err != nil {
			return err
		}
		for _, thread := range page.Threads {
			for _, block := range thread.Blocks {
				images = images || len(block.Images) > 0
				block.Images = nil
				line, err := json.Marshal(archivedBlock{thread.ID, block})
				if err != nil {
					return err
				}
				line = append(e.masker.JSON(line), '\n')
				if size += int64(len(line)); size > maxConversationBytes {
					return failure.Errorf(failure.LimitReached, "the conversation has more than %d bytes, which is too much for an archive", maxConversationBytes)
				}
				if _, err := f.Write(line); err != nil {
					return err
				}
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if images {
		e.missing = append(e.missing, "images in the conversation")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := e.w.Conversation(size, f); err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	return nil
}

// pieces reads content piece by piece.
type pieces struct {
	next iter.Seq2[[]byte, error]
	pull func() ([]byte, error, bool)
	stop func()
	left []byte
}

// close releases the content.
func (p *pieces) close() {
	if p.stop != nil {
		p.stop()
	}
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if p.pull == nil {
		p.pull, p.stop = iter.Pull2(p.next)
	}
	for len(p.left) == 0 {
		piece, err, ok := p.pull()
		if !ok {
			err = io.EOF
		}
		if err != nil {
			return 0, err
		}
		p.left = piece
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// piecesOf returns the content of a reader in pieces.
func piecesOf(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buffer := make([]byte, 64<<10)
		for {
			n, err := r.Read(buffer)
			if n > 0 && !yield(buffer[:n], nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
