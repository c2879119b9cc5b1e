package demoformat

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDeltasAreDecodedAlike checks that the short way to decode a delta gives the line of the general
// decoder.
func TestDeltasAreDecodedAlike(t *testing.T) {
	t.Parallel()
	alike := func(t require.TestingT, data []byte) (short bool) {
		got, ok := decodeDelta(data)
		if !ok {
			return false
		}
		var want Line
		require.NoError(t, json.Unmarshal(data, &want), "%s", data)
		require.Equal(t, want, got, "%s", data)
		return true
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := Line{
			Type: LineDelta, UUID: rapid.StringN(1, 9, -1).Draw(rt, "uuid"), RunID: rapid.String().Draw(rt, "run"), Content: rapid.String().Draw(rt, "content"),
			At: time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(rt, "at")).UTC(),
		}
		data, err := l.Encode()
		require.NoError(rt, err)
		require.True(rt, alike(rt, data), "%s", data)
		for range 3 { // damage it
			at := rapid.IntRange(0, len(data)-1).Draw(rt, "position")
			data[at] = rapid.Byte().Draw(rt, "byte")
			alike(rt, data)
		}
	})
	for _, text := range []string{
		`{"type":"delta","uuid":"b","agent":"sub","content":"x"}`, `{"type":"delta","uuid":"b","usage":{"input":1}}`,
		`{"type":"delta","uuid":"b","content":7}`, `{"type":"delta","uuid":"b","at":null}`, `{"type":"delta","uuid":"b","UUID":"c"}`,
		`{"type":"title","content":"x"}`, `{"type":"delta","content":"x"}`, `{"type":"delta","uuid":"b"`, ``,
	} {
		require.False(t, alike(t, []byte(text)), text)
	}
}

//nolint:paralleltest // the test counts allocations
func TestDeltaIsDecodedWithoutReflection(t *testing.T) {
	data, err := Line{Type: LineDelta, UUID: "b", RunID: "run_1", Content: "word ", At: time.UnixMilli(0).UTC()}.Encode()
	require.NoError(t, err)
	short := testing.AllocsPerRun(100, func() { DecodeLine(data) })
	general := testing.AllocsPerRun(100, func() {
		var l Line
		_ = json.Unmarshal(data, &l)
	})
	require.Less(t, short, general)
	require.LessOrEqual(t, short, 5.0)
}
