package api

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// maxImporting bounds the concurrent imports. Each import has a temporary file.
	maxImporting = 4
	// importTimeout bounds the upload of an archive.
	importTimeout = 10 * time.Minute
	// maxImportedBlocks and maxConversationBytes bound the conversation of an archive.
	maxImportedBlocks    = 50_000
	maxConversationBytes = 64 << 20
	maxConversationLine  = 8 << 20
)

// take handles POST /api/bundles/import: it reads the whole archive, checks it, and then stores it and its session at once.
func (s *archives) take(c echo.Context) (err error) {
	key := c.Request().Header.Get(idempotencyHeader)
	if _, given := c.Request().Header[idempotencyHeader]; given && !idempotencyKey.MatchString(key) {
		return invalid(idempotencyHeader, "must be 1 to 255 visible ASCII characters")
	}
	select {
	case s.importing <- struct{}{}:
		defer func() { <-s.importing }()
	default:
		return failure.Errorf(failure.RateLimited, "%d archives are being imported; try again later", maxImporting)
	}
	f, err := scratchFile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	digest, err := s.receive(c, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), importTimeout)
	defer cancel()
	in, missing, err := s.imported(ctx, f, c.QueryParam("title"), c.QueryParam("profile"))
	if err != nil {
		return err
	}
	var idem session.Idempotency
	if key != "" {
		idem = session.Idempotency{Key: key, Digest: digest}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	stored, created, err := s.archived.SessionImport(ctx, in, f, idem)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/sessions/"+stored.ID)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		s.metrics.sessions.Inc()
	}
	out := resource.Session(stored)
	out.Warnings = append(warnings(missing, stored.Agent), s.modelWarnings(stored.Agent, stored.Options.Model)...)
	return c.JSON(status, out)
}

// receive stores the body in a file, within its bounds, and returns its digest.
func (s *archives) receive(c echo.Context, f *os.File) (digest string, err error) {
	r := c.Request()
	if r.ContentLength > portable.MaxArchiveBytes {
		return "", failure.Errorf(failure.TooLarge, "the archive is larger than %d bytes", portable.MaxArchiveBytes)
	}
	if err := http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(importTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return "", fmt.Errorf("put off read deadline: %w", err)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "import %q %q ", c.QueryParam("title"), c.QueryParam("profile")) // never fails
	n, err := io.Copy(io.MultiWriter(f, sum), http.MaxBytesReader(c.Response(), r.Body, portable.MaxArchiveBytes))
	if pathErr, ok := errors.AsType[*os.PathError](err); ok { // of the temporary file
		return "", pathErr
	}
	if err != nil {
		return "", broken(err)
	}
	if n == 0 {
		return "", failure.Errorf(failure.Invalid, "the body is empty; an archive is expected")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// imported checks an archive and returns the session that it describes, and the missing secrets
// that its agent needs.
func (s *archives) imported(ctx context.Context, f *os.File, title, named string) (in bundle.Import, missing []agent.Need, err error) {
	m, err := readArchive(f, func(portable.Entry, io.Reader) error { return nil })
	if err != nil {
		return in, nil, err
	}
	if in, err = s.importedSession(m, title); err != nil {
		return in, nil, err
	}
	var spec *profile.Spec
	if named != "" {
		pinned, err := s.pinProfile(ctx, named)
		if err != nil {
			return in, nil, err
		}
		in.Session.Profile, spec = pinned.Ref(), &pinned.Spec
		m.Missing = slices.DeleteFunc(m.Missing, func(item string) bool { return item == lacksProfile(m.Session.Profile) })
	}
	adapter, err := s.cfg.Agents.Get(in.Session.Agent)
	if err != nil {
		return in, nil, invalidArchive("session.agent", "%s", err)
	}
	if missing, err = s.missing(ctx, s.store, in.Session.Agent, spec); err != nil {
		return in, nil, err
	}
	names, err := absent(ctx, s.store, missing, m.Session.Secrets)
	if err != nil {
		return in, nil, err
	}
	for _, name := range names {
		m.AddMissing("the secret " + name + " (not stored when the session was imported)")
	}
	in.MemoryID, in.Place = m.MemoryID, cmp.Or(m.Source.Place, "another place")
	in.PromptID, in.Outcome = m.Source.PromptID, importedOutcome(m.Source.Outcome)
	in.Manifest = manifest.Manifest{Lost: m.Missing, From: in.Place}
	if err := agentFiles(adapter, m, &in); err != nil {
		return in, nil, err
	}
	in.Blocks, err = blocksOf(f, adapter, m)
	return in, missing, err
}

// readArchive reads the archive in a file from its beginning.
func readArchive(f *os.File, take func(portable.Entry, io.Reader) error) (portable.Manifest, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return portable.Manifest{}, err
	}
	m, err := portable.Read(f, take)
	if wrong, ok := errors.AsType[*portable.InvalidError](err); ok {
		return m, &failure.Error{Code: failure.Invalid, Message: "the archive is refused: " + wrong.Error(), Fields: []failure.Field{{Field: "archive", Message: wrong.Error()}}}
	}
	return m, err
}

func invalidArchive(field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return &failure.Error{Code: failure.Invalid, Message: "the archive is refused: " + field + " " + message, Fields: []failure.Field{{Field: field, Message: message}}}
}

// importedSession returns the session that a manifest describes, validated like a new session.
func (s *archives) importedSession(m portable.Manifest, title string) (bundle.Import, error) {
	for _, text := range []struct{ field, value string }{{"source.place", m.Source.Place}, {"source.promptId", m.Source.PromptID}} {
		if len(text.value) > maxFilterBytes {
			return bundle.Import{}, invalidArchive(text.field, "is %d bytes long; at most %d are allowed", len(text.value), maxFilterBytes)
		}
	}
	if m.Workspace != portable.Workspace || m.Home != portable.Home {
		return bundle.Import{}, invalidArchive("workspace", "must be %s, and home %s", portable.Workspace, portable.Home)
	}
	fields := map[string]any{"agent": m.Session.Agent}
	if title = cmp.Or(title, m.Session.Title); title != "" {
		fields["title"] = title
	}
	for name, raw := range map[string]json.RawMessage{"workspace": m.Session.Workspace, "options": m.Session.Options, "metadata": m.Session.Metadata} {
		if len(raw) > 0 && string(raw) != "null" {
			fields[name] = raw
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return bundle.Import{}, invalidArchive("session", "is not JSON")
	}
	body, _, err := parseBody(data, false)
	if err != nil {
		return bundle.Import{}, err
	}
	sess, _, _ := s.newSession(body, nil)
	return bundle.Import{Session: sess}, body.done()
}

func importedOutcome(text string) session.Outcome {
	switch o := session.Outcome(text); o {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
		return o
	}
	return ""
}

// agentFiles lists the agent's own files. Their paths must be paths that the agent writes.
func agentFiles(adapter agent.Adapter, m portable.Manifest, in *bundle.Import) error {
	if !session.ValidID(session.SessionPrefix, m.MemoryID) {
		return invalidArchive("memoryId", "must be %s and 32 lower-case hexadecimal digits", session.SessionPrefix)
	}
	launch, err := adapter.Launch(agent.LaunchInput{SessionID: m.MemoryID, Home: portable.Home, Workspace: portable.Workspace, Resume: true})
	if err != nil {
		return invalidArchive("memoryId", "%s", err)
	}
	for _, e := range m.Entries {
		if !e.AgentFile() {
			continue
		}
		if len(e.Path) > transcript.MaxPath || !slices.ContainsFunc(launch.Transcripts, func(pattern string) bool {
			matches, err := doublestar.Match(pattern, e.Path)
			return err == nil && matches
		}) {
			return invalidArchive("entries", "has %q, which is not a file of the memory of %s", e.Path, adapter.Name())
		}
		in.Manifest.AgentFiles = append(in.Manifest.AgentFiles, manifest.File{Path: e.Path, Size: e.Size, SHA256: e.SHA256})
	}
	if len(in.Manifest.AgentFiles) > transcript.MaxFiles {
		return invalidArchive("entries", "has %d files of the agent; at most %d are allowed", len(in.Manifest.AgentFiles), transcript.MaxFiles)
	}
	in.Remembers = len(in.Manifest.AgentFiles) > 0
	return nil
}

// blocksOf reads the conversation of an archive. If the archive has none, the adapter reads it from
// the agent's files.
func blocksOf(f *os.File, adapter agent.Adapter, m portable.Manifest) ([]bundle.ImportedBlock, error) {
	paths := map[string]string{}
	var total int64
	has := false
	for _, e := range m.Entries {
		if has = has || e.Name == portable.ConversationEntry; e.AgentFile() {
			paths[e.Name] = e.Path
			total += e.Size
		}
	}
	var c conversation.Conversation
	var files []transcript.File
	if !has && total > transcript.MaxRevertBytes {
		return nil, invalidArchive("entries", "has no conversation, and %d bytes of agent files to read it from; at most %d are allowed", total, transcript.MaxRevertBytes)
	}
	_, err := readArchive(f, func(e portable.Entry, r io.Reader) (err error) {
		switch {
		case e.Name == portable.ConversationEntry:
			c, err = readConversation(r)
		case !has && paths[e.Name] != "":
			var data []byte
			data, err = io.ReadAll(r)
			files = append(files, transcript.File{Path: paths[e.Name], Data: data})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !has && len(files) > 0 {
		if c, err = adapter.Parse(files); err != nil {
			return nil, invalidArchive("entries", "has files of the agent that cannot be read: %s", err)
		}
	}
	return importedBlocks(c)
}

// readConversation reads one block from each line.
func readConversation(r io.Reader) (conversation.Conversation, error) {
	var c conversation.Conversation
	at := map[string]int{}
	lines := bufio.NewScanner(io.LimitReader(r, maxConversationBytes+1))
	lines.Buffer(nil, maxConversationLine)
	n, size := 0, 0
	for lines.Scan() {
		n++
		if size += len(lines.Bytes()) + 1; size > maxConversationBytes || n > maxImportedBlocks {
			return c, invalidArchive(portable.ConversationEntry, "has more than %d blocks or %d bytes", maxImportedBlocks, maxConversationBytes)
		}
		var line archivedBlock
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return c, invalidArchive(portable.ConversationEntry, "line %d is not a block: %s", n, err)
		}
		i, ok := at[line.Conversation]
		if !ok {
			i = len(c.Threads)
			at[line.Conversation] = i
			c.Threads = append(c.Threads, conversation.Thread{ID: line.Conversation})
		}
		c.Threads[i].Blocks = append(c.Threads[i].Blocks, line.Block)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = invalidArchive(portable.ConversationEntry, "line %d has more than %d bytes", n+1, maxConversationLine)
		}
		return c, err
	}
	return c, nil
}

// importedBlocks checks blocks and closes open ones, since no further events for them will arrive.
func importedBlocks(c conversation.Conversation) ([]bundle.ImportedBlock, error) {
	var out []bundle.ImportedBlock
	seen := map[[2]string]bool{}
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			key := [2]string{thread.ID, b.ID}
			if wrong := wrongBlock(thread.ID, b); wrong != "" {
				return nil, invalidArchive(portable.ConversationEntry, "has a block that %s", wrong)
			}
			if seen[key] || len(out) == maxImportedBlocks {
				return nil, invalidArchive(portable.ConversationEntry, "has the block %q twice, or more than %d blocks", b.ID, maxImportedBlocks)
			}
			seen[key] = true
			b.Images = nil
			b.Content, b.Message = strings.ReplaceAll(b.Content, "\x00", "\uFFFD"), strings.ReplaceAll(b.Message, "\x00", "\uFFFD")
			if b.Status.Open() {
				b.Status = conversation.Aborted
			}
			data, err := json.Marshal(b)
			if err != nil {
				return nil, invalidArchive(portable.ConversationEntry, "has a block that is not JSON")
			}
			out = append(out, bundle.ImportedBlock{Conversation: thread.ID, ID: b.ID, JSON: data})
		}
	}
	return out, nil
}

var (
	blockTypes = []conversation.BlockType{
		conversation.UserMessage, conversation.AssistantText, conversation.Thinking, conversation.ToolUse, conversation.ToolResult, conversation.System, conversation.Subagent,
	}
	blockStatuses = []conversation.BlockStatus{
		conversation.Streaming, conversation.Complete, conversation.Abandoned, conversation.Pending, conversation.Running, conversation.Success, conversation.Failed, conversation.Aborted,
	}
)

// wrongBlock returns the error of an invalid block.
func wrongBlock(thread string, b conversation.Block) string {
	switch {
	case thread == "" || len(thread) > conversation.MaxIDBytes || b.ID == "" || len(b.ID) > conversation.MaxIDBytes || !utf8.ValidString(thread+b.ID):
		return fmt.Sprintf("has no id, or one of more than %d bytes", conversation.MaxIDBytes)
	case !slices.Contains(blockTypes, b.Type):
		return fmt.Sprintf("has the unknown type %q", b.Type)
	case !slices.Contains(blockStatuses, b.Status):
		return fmt.Sprintf("has the unknown status %q", b.Status)
	case len(b.Content) > 2*conversation.MaxBlockBytes || len(b.Message) > 2*conversation.MaxBlockBytes || len(b.Input) > 2*conversation.MaxBlockBytes || len(b.Output) > 2*conversation.MaxBlockBytes:
		return fmt.Sprintf("has more than %d bytes", 2*conversation.MaxBlockBytes)
	case b.CreatedAt.Year() < 1 || b.CreatedAt.Year() > 9999:
		return "has no valid time"
	}
	return ""
}
