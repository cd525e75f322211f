package dashboard_test

import (
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shrink copies the manual's pictures from one directory to another, each reduced to 256 frequent
// colours. This halves the size of the files without a visible difference.
func shrink(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "manual-*.png"))
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		img, err := png.Decode(f)
		f.Close()
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(to, "dashboard-"+strings.TrimPrefix(filepath.Base(name), "manual-")))
		if err != nil {
			return err
		}
		err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, fewColours(img))
		if err := cmp.Or(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fewColours reduces a picture to 256 frequent colours. Every other colour becomes the nearest of
// these 256.
func fewColours(img image.Image) *image.Paletted {
	b := img.Bounds()
	count := map[color.RGBA]int{}
	each := func(do func(x, y int, c color.RGBA)) {
		for y := b.Min.Y; y < b.Max.Y; y++ {
			for x := b.Min.X; x < b.Max.X; x++ {
				do(x, y, color.RGBAModel.Convert(img.At(x, y)).(color.RGBA))
			}
		}
	}
	each(func(_, _ int, c color.RGBA) { count[c]++ })
	// The shades of one colour come after each colour has had its turn. Otherwise the many shades of
	// grey at the edges of letters would leave no place for rare colours.
	var palette, shades color.Palette
	seen := map[color.RGBA]bool{}
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) }) {
		if rough := (color.RGBA{c.R >> 5, c.G >> 5, c.B >> 5, 0}); seen[rough] {
			shades = append(shades, c)
		} else {
			seen[rough] = true
			palette = append(palette, c)
		}
	}
	palette = append(palette, shades...)
	palette = palette[:min(len(palette), 256)]
	out, index := image.NewPaletted(b, palette), map[color.RGBA]uint8{}
	each(func(x, y int, c color.RGBA) {
		i, ok := index[c]
		if !ok {
			i = uint8(palette.Index(c))
			index[c] = i
		}
		out.SetColorIndex(x, y, i)
	})
	return out
}
