package runner

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// everyMessage returns one message of each kind, with all fields set.
func everyMessage() []Message {
	position := transcript.Position{Path: "/root/a", Version: 2, Size: 3}
	return []Message{
		&Hello{
			Version: 1, Token: "t", Run: "run_1", From: 4, Attempt: 2, Known: []transcript.Position{position},
			Files: &workspacefile.Position{Session: "ses_1", Lineage: "l", Seq: 9, Base: "b", DiffKey: "k"}, Calls: true, Window: 6,
		},
		&FilesKnown{Files: []workspacefile.Known{{Path: "a", Size: 1, SHA256: "s", Mode: 0o644, Unsaved: workspacefile.UnsavedFull}}},
		&FilesBegun{Lineage: "l", Base: "b"},
		&FileChanged{workspacefile.Change{Seq: 3, Kind: workspacefile.Created, Initial: true, Content: workspacefile.Content{
			Info: workspacefile.Info{Path: "a/b", Size: 3, SHA256: "s", Mode: 0o755, ModifiedAt: time.Unix(1, 2).UTC()}, Data: []byte("a\x00b"),
		}}},
		&FileChanged{workspacefile.Change{Seq: 4, Kind: workspacefile.Modified, Content: workspacefile.Content{
			Info: workspacefile.Info{Path: "big", Size: 3, ModifiedAt: time.Unix(1, 2).UTC(), Unsaved: workspacefile.UnsavedTooLarge},
		}}},
		&FilesBounded{Seq: 5},
		&Survey{Key: "k", Workspace: "/w"},
		&Diff{workspacefile.Diff{
			Key: "k", Base: "b", Files: []workspacefile.Delta{{Path: "a", Change: workspacefile.Deleted, Deletions: 1, Binary: true}},
			Additions: 1, Deletions: 2, FilesChanged: 3, Git: &workspacefile.GitState{Branch: "main", Head: "h", Dirty: true},
			Patch: []byte("p"), Truncated: true, At: time.Unix(1, 2).UTC(),
		}},
		&Start{
			Launch:  Launch{Argv: []string{"a", "b"}, Env: map[string]string{"K": "v"}, Dir: "/w", Transcripts: []string{"/x"}, Key: "k"},
			Input:   []byte("prompt\n\x00\xff"),
			Secrets: map[string]string{"S": "s"},
		},
		&Input{Data: []byte("more")},
		&Interrupt{Stdin: []byte("x"), Signal: "INT", Grace: time.Second},
		&Taken{Next: 70, Window: 80},
		&Steer{ID: "prm_1", Data: []byte("also this\n")},
		&Settle{},
		&Quiet{},
		&Flush{ID: 5},
		&Command{Version: 1, Token: "t", Ping: true, Abort: &AbortRequest{Run: "run_1"}, Seal: &SealRequest{Workspace: "/w"}},
		&Welcome{Version: 1, Delivery: Delivered, LastFrame: 7, Open: true, Agent: true, ListFiles: true, Steers: true, Seals: true, Window: true},
		&DeliveryChanged{Delivery: Cut},
		&Frame{No: 8, Stream: Stderr, At: time.Unix(1, 2).UTC(), Data: []byte("line"), Truncated: true},
		&Segment{Path: "/root/a", Version: 2, Offset: 1 << 40, Data: []byte("bytes")},
		&Flushed{ID: 5},
		&Alive{},
		&Displaced{},
		&Error{Code: CodeToken, Message: "no"},
		&Result{Data: []byte(`{"a":1}`)},
		&File{Path: "/root/a", Size: 3},
		&Data{Bytes: []byte("abc")},
		&End{Files: 1},
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, m := range everyMessage() {
		require.NoError(t, WriteMessage(&b, m))
	}
	for _, want := range everyMessage() {
		got, err := ReadMessage(&b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ReadMessage(&b)
	require.Equal(t, io.EOF, err)
}

func TestTruncatedMessageIsError(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, WriteMessage(&b, &Input{Data: []byte("hello")}))
	for n := 1; n < b.Len(); n++ {
		_, err := ReadMessage(bytes.NewReader(b.Bytes()[:n]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "after %d bytes", n)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, WriteMessage(io.Discard, &Input{Data: make([]byte, maxMessage+1)}), "bound")
	head := binary.BigEndian.AppendUint32([]byte{byte(typeInput)}, maxMessage+1)
	_, err := ReadMessage(bytes.NewReader(head))
	require.ErrorContains(t, err, "bound")
	require.Error(t, WriteMessage(io.Discard, &Segment{Path: strings.Repeat("x", 1<<16)}))
	require.Error(t, WriteMessage(io.Discard, &Frame{Stream: "other"}))

	// The longest line fits.
	var b bytes.Buffer
	require.NoError(t, WriteMessage(&b, &Frame{Stream: Stdout, Data: make([]byte, MaxLine)}))
	m, err := ReadMessage(&b)
	require.NoError(t, err)
	require.Len(t, m.(*Frame).Data, MaxLine)
}

func TestTokenMatchesOnlyItsHash(t *testing.T) {
	t.Parallel()
	token, hash := NewToken()
	other, _ := NewToken()
	require.Len(t, token, 64)
	require.True(t, TokenMatches(token, hash))
	require.False(t, TokenMatches(other, hash))
	require.False(t, TokenMatches(hash, hash))
	require.False(t, TokenMatches("", ""))
}

func FuzzReadMessage(f *testing.F) {
	for _, m := range everyMessage() {
		var b bytes.Buffer
		require.NoError(f, WriteMessage(&b, m))
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()-1])
	}
	f.Add([]byte{byte(typeFrame), 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadMessage(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, WriteMessage(&b, m))
		again, err := ReadMessage(&b)
		require.NoError(t, err)
		// JSON has several encodings of an empty value. After the first decoding, the encoding must
		// be stable.
		var c bytes.Buffer
		require.NoError(t, WriteMessage(&c, again))
		third, err := ReadMessage(&c)
		require.NoError(t, err)
		require.True(t, reflect.DeepEqual(again, third), "%#v became %#v", again, third)
	})
}
