package conversation_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

const (
	png  = "\x89PNG\r\n\x1a\n"
	jpeg = "\xff\xd8\xff"
)

func TestImageIsKnownByItsBytes(t *testing.T) {
	t.Parallel()
	for data, kind := range map[string]string{
		png + "1": "image/png", jpeg + "1": "image/jpeg", "GIF89a1": "image/gif", "RIFF0000WEBPVP8 ": "image/webp",
		"<svg onload=alert(1)>": "", "<html>": "", "": "", "RIFF0000WAVEfmt ": "",
	} {
		i, ok := conversation.NewImage([]byte(data))
		require.Equal(t, kind != "", ok, "%q", data)
		require.Equal(t, kind, i.MediaType)
		encoded := base64.StdEncoding.EncodeToString([]byte(data))
		for _, form := range []string{encoded, "data:image/svg+xml;base64," + encoded, "data:;base64," + encoded} {
			decoded, decodes := conversation.DecodeImage(form)
			require.Equal(t, ok, decodes, form)
			require.Equal(t, i, decoded, form)
		}
	}
	one, _ := conversation.NewImage([]byte(png + "1"))
	same, _ := conversation.NewImage([]byte(png + "1"))
	other, _ := conversation.NewImage([]byte(png + "2"))
	require.Equal(t, one.ID, same.ID)
	require.NotEqual(t, one.ID, other.ID)
	require.NotEqual(t, one.ID, conversation.AttachmentID([]byte(png+"1"), "a"), "a file of that content is another thing")
	require.Regexp(t, `^att_[0-9a-f]{32}$`, one.ID)
	require.EqualValues(t, len(png)+1, one.Bytes)

	_, ok := conversation.NewImage([]byte(png + strings.Repeat("x", conversation.MaxImageBytes-len(png))))
	require.True(t, ok)
	_, ok = conversation.NewImage([]byte(png + strings.Repeat("x", conversation.MaxImageBytes)))
	require.False(t, ok, "it is too large")
	_, ok = conversation.DecodeImage("https://example.org/a.png")
	require.False(t, ok)
}

// result returns a result with images after a limiter.
func result(t *testing.T, l *conversation.Limiter, images ...conversation.Image) []conversation.Image {
	t.Helper()
	out, err := l.Encode(conversation.Event{Type: conversation.EventBlockComplete, At: time.Unix(0, 0), Data: conversation.BlockComplete{
		Block: conversation.Block{ID: "r", Type: conversation.ToolResult, Status: conversation.Success, Images: images},
	}})
	require.NoError(t, err)
	require.Len(t, out, 1)
	var d conversation.BlockComplete
	require.NoError(t, json.Unmarshal(out[0].JSON, &d))
	return d.Block.Images
}

func TestImagesBeyondBoundsOfTurnAreMarked(t *testing.T) {
	t.Parallel()
	image := func(i int, bytes int64) conversation.Image {
		return conversation.Image{ID: fmt.Sprint("att_", i), MediaType: "image/png", Bytes: bytes}
	}
	var l conversation.Limiter
	require.True(t, l.Keep(image(0, conversation.MaxTurnImageBytes-1)))
	require.False(t, l.Keep(image(0, conversation.MaxTurnImageBytes-1)), "it is stored already")
	require.False(t, l.Keep(image(1, 2)))
	require.True(t, l.Keep(image(2, 1)))
	state, err := json.Marshal(&l)
	require.NoError(t, err)
	var resumed conversation.Limiter
	require.NoError(t, json.Unmarshal(state, &resumed))
	got := result(t, &resumed, image(0, 1), image(1, 1), image(2, 1))
	require.Equal(t, []bool{false, true, false}, []bool{got[0].Omitted, got[1].Omitted, got[2].Omitted})

	l = conversation.Limiter{}
	for i := range conversation.MaxTurnImages {
		require.True(t, l.Keep(image(i, 1)))
	}
	require.False(t, l.Keep(image(conversation.MaxTurnImages, 1)))
	many := make([]conversation.Image, conversation.MaxBlockImages+1)
	require.Len(t, result(t, &l, many...), conversation.MaxBlockImages)
	require.Nil(t, result(t, &l))
}
