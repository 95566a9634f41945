//! Plain tables of aligned columns.

/// A table of texts; rows may be added until it is printed.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// The space between two columns.
const GAP: &str = "  ";

impl Table {
    /// Returns a table that holds its heading.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row. Control characters are shown, not sent to the terminal.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Returns the table as lines, each column as wide as its widest cell but for the last.
    pub(crate) fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text.push_str(cells.join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// Returns a text in which control characters are written as escapes.
///
/// Descriptions and messages come from callers: they must not move a person's cursor.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_and_lines_carry_no_trailing_space() {
        let mut table = Table::new(&["ID", "NAME"]);
        table.row(["é".to_owned(), "one".to_owned()]);
        table.row(["echo.test".to_owned(), String::new()]);
        assert_eq!(table.to_text(), "ID         NAME\né          one\necho.test\n");
    }

    #[test]
    fn a_cell_cannot_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
    }
}
