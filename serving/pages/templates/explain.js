"use strict";
(() => {
{% include "explain_model.js" %}
{% include "explain_view.js" %}
{% include "explain_cards.js" %}
{% include "explain_state.js" %}
})();
