//! The menu of completions closes itself when there are none, so that Enter runs the line.

use reedline::{ColumnarMenu, Completer, Editor, Menu, MenuEvent, Painter, Suggestion};

/// A menu that is open only while it has something to offer.
pub(super) struct CompletionMenu(pub(super) ColumnarMenu);

impl CompletionMenu {
    fn close_if_empty(&mut self) {
        if self.0.get_values().is_empty() {
            self.0.menu_event(MenuEvent::Deactivate);
        }
    }
}

impl Menu for CompletionMenu {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn indicator(&self) -> &str {
        self.0.indicator()
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn menu_event(&mut self, event: MenuEvent) {
        self.0.menu_event(event);
    }

    fn can_quick_complete(&self) -> bool {
        self.0.can_quick_complete()
    }

    fn can_partially_complete(
        &mut self,
        values_updated: bool,
        editor: &mut Editor,
        completer: &mut dyn Completer,
    ) -> bool {
        self.0
            .can_partially_complete(values_updated, editor, completer)
    }

    fn update_values(&mut self, editor: &mut Editor, completer: &mut dyn Completer) {
        self.0.update_values(editor, completer);
        self.close_if_empty();
    }

    fn update_working_details(
        &mut self,
        editor: &mut Editor,
        completer: &mut dyn Completer,
        painter: &Painter,
    ) {
        self.0.update_working_details(editor, completer, painter);
        self.close_if_empty();
    }

    fn replace_in_buffer(&self, editor: &mut Editor) {
        self.0.replace_in_buffer(editor);
    }

    fn menu_required_lines(&self, terminal_columns: u16) -> u16 {
        self.0.menu_required_lines(terminal_columns)
    }

    fn menu_string(&self, available_lines: u16, use_ansi_coloring: bool) -> String {
        self.0.menu_string(available_lines, use_ansi_coloring)
    }

    fn min_rows(&self) -> u16 {
        self.0.min_rows()
    }

    fn get_values(&self) -> &[Suggestion] {
        self.0.get_values()
    }
}
