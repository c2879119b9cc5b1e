package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/manifest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// peer is the runner's end of a link, played by the test.
type peer struct {
	t   *testing.T
	in  *io.PipeReader
	out *io.PipeWriter
}

func (p *peer) read() Message {
	p.t.Helper()
	m, err := ReadMessage(p.in)
	require.NoError(p.t, err)
	return m
}

// say returns once the link has read the message.
func (p *peer) say(m Message) {
	p.t.Helper()
	require.NoError(p.t, WriteMessage(p.out, m))
}

func setup(t *testing.T) (*peer, *io.PipeWriter, *io.PipeReader) {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	t.Cleanup(func() { _ = errors.Join(in.Close(), out.Close()) })
	return &peer{t, in, out}, stdin, stdout
}

func dialed(t *testing.T) (*peer, *Link) {
	t.Helper()
	p, stdin, stdout := setup(t)
	var l *Link
	var err error
	var dialing sync.WaitGroup
	dialing.Go(func() { l, err = Dial(t.Context(), stdin, stdout, Hello{Token: "t", Run: "run_1", From: 3}, nil) })
	require.Equal(t, &Hello{Version: ProtocolVersion, Token: "t", Run: "run_1", From: 3}, p.read())
	p.say(&Welcome{Version: ProtocolVersion, Delivery: Delivered, LastFrame: 9})
	dialing.Wait()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return p, l
}

func TestDialSendsHelloAndReceivesWelcome(t *testing.T) {
	t.Parallel()
	p, l := dialed(t)
	require.EqualValues(t, 9, l.Welcome().LastFrame)
	var sending sync.WaitGroup
	sending.Go(func() { _ = l.Interrupt(Interrupt{Signal: "INT"}) })
	require.Equal(t, &Interrupt{Signal: "INT"}, p.read())
	sending.Wait()
	p.say(&Frame{No: 3, Stream: Stdout})
	m, err := l.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, m.(*Frame).No)
}

func TestDialFailsWithRunnersRefusal(t *testing.T) {
	t.Parallel()
	p, stdin, stdout := setup(t)
	go func() {
		_, _ = ReadMessage(p.in)
		_ = WriteMessage(p.out, &Error{Code: CodeToken, Message: "no"})
	}()
	_, err := Dial(t.Context(), stdin, stdout, Hello{Run: "run_1"}, nil)
	refusal, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.Equal(t, CodeToken, refusal.Code)
	_, err = stdin.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "a link that failed is closed")
}

func TestDialClosesLinkAfterTruncatedHello(t *testing.T) {
	t.Parallel()
	p, stdin, stdout := setup(t)
	go func() {
		_ = WriteMessage(p.out, &Welcome{Version: ProtocolVersion})
		_ = p.in.CloseWithError(io.ErrClosedPipe)
	}()
	_, err := Dial(t.Context(), stdin, stdout, Hello{Run: "run_1"}, nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorIs(t, WriteMessage(p.out, &Alive{}), io.ErrClosedPipe)
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, stdin, stdout := setup(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, err := Dial(ctx, stdin, stdout, Hello{Run: "run_1"}, nil) // not even the hello is read
	require.ErrorIs(t, err, gone)
}

func TestDialFailsWhenExecEndsSilently(t *testing.T) {
	t.Parallel()
	p, stdin, stdout := setup(t)
	require.NoError(t, errors.Join(p.in.Close(), p.out.Close()))
	_, err := Dial(t.Context(), stdin, stdout, Hello{Run: "run_1"}, nil)
	require.Error(t, err)
}

func TestNextReportsWhyLinkEnded(t *testing.T) {
	t.Parallel()
	journalFailed := &Error{Code: CodeJournal, Message: "full"}
	ends := map[string]struct {
		say  func(*peer)
		want error
	}{
		"displaced": {func(p *peer) { p.say(&Displaced{}) }, ErrDisplaced},
		"error":     {func(p *peer) { p.say(journalFailed) }, journalFailed},
		"silence":   {func(p *peer) { _ = p.out.Close() }, io.EOF},
		"torn":      {func(p *peer) { _, _ = p.out.Write([]byte{1, 2}); _ = p.out.Close() }, io.ErrUnexpectedEOF},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, l := dialed(t)
			p.say(&Frame{No: 3, Stream: Stdout})
			end.say(p)
			_, err := l.Next(t.Context())
			require.NoError(t, err, "earlier messages are not lost")
			for range 2 {
				_, err = l.Next(t.Context())
				if refusal, ok := errors.AsType[*Error](err); ok {
					require.Equal(t, end.want, refusal)
				} else {
					require.ErrorIs(t, err, end.want)
				}
			}
		})
	}
}

func TestCloseEndsWaiters(t *testing.T) {
	t.Parallel()
	_, l := dialed(t)
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = l.Next(context.Background()) })
	waiting.Go(func() { _ = l.Input([]byte("never read")) })
	for range 2 {
		waiting.Go(func() { _ = l.Close() })
	}
	waiting.Wait()
	_, err := l.Next(t.Context())
	require.Error(t, err)
}

func TestCloseDoesNotWaitForReaderWithoutTaker(t *testing.T) {
	t.Parallel()
	p, l := dialed(t)
	var flood sync.WaitGroup
	flood.Go(func() {
		for WriteMessage(p.out, &Alive{}) == nil {
		}
	})
	require.NoError(t, l.Close())
	flood.Wait()
}

func TestReadSealRequiresManifest(t *testing.T) {
	t.Parallel()
	line := `{"segment":{"Path":"/a","Version":1,"Offset":2,"Data":"aGk="}}` + "\n"
	var got []Segment
	keep := func(m Message) error { got = append(got, *m.(*Segment)); return nil }
	_, err := ReadSeal(bytes.NewBufferString(line), keep)
	require.ErrorContains(t, err, "without a manifest")
	require.Equal(t, []Segment{{Path: "/a", Version: 1, Offset: 2, Data: []byte("hi")}}, got)

	s, err := ReadSeal(bytes.NewBufferString(line+`{"seal":{"manifest":{"agentFiles":[{"path":"/a","size":4,"sha256":"x"}]},"lastFrame":-1}}`), keep)
	require.NoError(t, err)
	require.Equal(t, []manifest.File{{Path: "/a", Size: 4, SHA256: "x"}}, s.Manifest.AgentFiles)

	_, err = ReadSeal(bytes.NewBufferString(line+`{"se`), keep)
	require.Error(t, err)
	full := errors.New("full")
	_, err = ReadSeal(bytes.NewBufferString(line), func(Message) error { return full })
	require.ErrorIs(t, err, full)
}
