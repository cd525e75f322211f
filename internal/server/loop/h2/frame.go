package h2

import "encoding/binary"

// kind is the type of a frame.
type kind byte

const (
	kindData kind = iota
	kindHeaders
	kindPriority
	kindReset
	kindSettings
	kindPush
	kindPing
	kindGoAway
	kindWindow
	kindContinuation
)

// Flags of frames. A bit has different meanings in different kinds of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Code is the reason for which a stream or a connection ends.
type Code uint32

const (
	noError Code = iota
	protocolError
	internalError
	flowControlError
	_
	streamClosed
	frameSizeError
	refusedStream
	_
	compressionError
)

// Settings that a client or the server may send.
const (
	settingTable      = 1 // size of the table of the header compression
	settingPush       = 2
	settingStreams    = 3
	settingWindow     = 4 // initial window of a stream
	settingFrame      = 5 // maximum size of a frame
	settingHeaderList = 6 // maximum size of header fields
)

const (
	frameHead   = 9         // length of the header of a frame
	firstWindow = 65535     // window of a connection before the first update
	mostWindow  = 1<<31 - 1 // maximum size of a window
	leastFrame  = 16 << 10  // a receiver must accept frames of this size
	mostFrame   = 1<<24 - 1
	tableSize   = 4096 // size of the table of the header compression, unless a setting changes it

	// MaxFrame is the length of the longest frame that the server accepts, without its header.
	MaxFrame = 64 << 10
)

// Preface is what a client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame is a frame that has been received. Its payload is valid only until the next frame.
type frame struct {
	kind    kind
	flags   byte
	stream  uint32
	payload []byte
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// frameSize returns the size of the frame at the start of b, including its header. b must have at
// least frameHead bytes.
func frameSize(b []byte) int { return frameHead + int(b[0])<<16 + int(b[1])<<8 + int(b[2]) }

// parse returns the frame at the start of b, which must be complete.
func parse(b []byte) frame {
	return frame{kind(b[3]), b[4], binary.BigEndian.Uint32(b[5:]) & mostWindow, b[frameHead:frameSize(b)]}
}

// appendHead appends the header of a frame with n bytes of payload.
func appendHead(b []byte, n int, k kind, flags byte, stream uint32) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(k), flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendFrame(b []byte, f frame) []byte {
	return append(appendHead(b, len(f.payload), f.kind, f.flags, f.stream), f.payload...)
}

// appendNumber appends a frame whose payload is a number.
func appendNumber(b []byte, k kind, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, 4, k, 0, stream), n)
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}

// unpad returns the payload of a frame without its padding. It returns false if the length of the
// padding is impossible.
func (f frame) unpad() ([]byte, bool) {
	if !f.has(flagPadded) {
		return f.payload, true
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return nil, false
	}
	return f.payload[1 : len(f.payload)-int(f.payload[0])], true
}

// appendFields appends a header block, in several frames if it is longer than the maximum.
func appendFields(b []byte, id uint32, block []byte, most int, ends bool) []byte {
	k, flags := kindHeaders, byte(0)
	if ends {
		flags = flagEndStream
	}
	for {
		part := block[:min(len(block), most)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= flagEndHeaders
		}
		b = appendFrame(b, frame{k, flags, id, part})
		if len(block) == 0 {
			return b
		}
		k, flags = kindContinuation, 0
	}
}
